//! Draws a tree with lines. The balancing tree of `crowfly inspect --tree` has a renderer of its
//! own, because its nodes have no remarks below them.

use crate::output::printable;

/// A line, its remarks, and the nodes below it.
#[derive(Debug, Default)]
pub(super) struct Node {
    line: String,
    remarks: Vec<String>,
    children: Vec<Self>,
}

impl Node {
    pub(super) fn new(line: impl Into<String>) -> Self {
        Self {
            line: line.into(),
            ..Self::default()
        }
    }

    /// Adds a remark, which is printed on a line of its own.
    pub(super) fn remark(&mut self, text: impl Into<String>) {
        self.remarks.push(text.into());
    }

    pub(super) fn push(&mut self, child: Self) {
        self.children.push(child);
    }

    /// Draws the tree. Control characters are escaped, because texts come from other processes.
    pub(super) fn draw(&self) -> String {
        let mut text = String::new();
        self.draw_into(&mut text, "", "");
        text
    }

    fn draw_into(&self, text: &mut String, first: &str, rest: &str) {
        push_line(text, first, &self.line);
        let bar = if self.children.is_empty() { " " } else { "│" };
        for remark in &self.remarks {
            push_line(text, &format!("{rest}{bar}  "), remark);
        }
        for (i, child) in self.children.iter().enumerate() {
            let (branch, below) = match i + 1 == self.children.len() {
                true => ("└─ ", "   "),
                false => ("├─ ", "│  "),
            };
            child.draw_into(text, &format!("{rest}{branch}"), &format!("{rest}{below}"));
        }
    }
}

fn push_line(text: &mut String, prefix: &str, line: &str) {
    text.push_str(prefix);
    text.push_str(&printable(line));
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_remarks_and_no_control_characters() {
        let mut root = Node::new("root");
        let mut first = Node::new("first");
        first.remark("remark");
        first.push(Node::new("below"));
        root.push(first);
        let mut last = Node::new("last\x1b[31m");
        last.remark("remark");
        root.push(last);
        let expected = "\
root
├─ first
│  │  remark
│  └─ below
└─ last\\u{1b}[31m
      remark
";
        assert_eq!(root.draw(), expected);
    }
}
