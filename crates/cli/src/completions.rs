//! `crowfly completions`: prints the completions that a shell reads. The completions come from the
//! flags themselves, so they are never out of date.

use std::io::{self, Write};

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;

/// Print the completions of a shell
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  source <(crowfly completions bash)
  crowfly completions zsh > ~/.zfunc/_crowfly
  crowfly completions fish > ~/.config/fish/completions/crowfly.fish")]
pub struct CompletionsArgs {
    /// The shell
    pub shell: Shell,
}

/// Prints the completions.
pub fn run(args: &CompletionsArgs) {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "crowfly", &mut script);
    // A reader that closes the pipe early has read all it wanted.
    let _ = io::stdout().write_all(&script);
}
