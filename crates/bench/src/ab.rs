//! The channel's HTTP/2 and the `h2` crate in one run, each under the same small layer of the
//! channel.
//!
//! Both carry calls to one backend in a process of its own. Samples alternate, and the result is
//! the median of the ratios within pairs, because a shared machine changes by the second.

mod idle;
mod kill;
mod over;
mod streams;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use clap::{Args, ValueEnum};
use crowfly::transport::Backend;
use crowfly_cli::bench::{BenchError, Quartiles, SamplingPlan, compare};
use crowfly_cli::child::{Child, Program};

pub(crate) use self::idle::{IdleArgs, run as hold_idle};
use self::over::Over;

/// Measure the channel's HTTP/2 against the h2 crate behind the same seam
#[derive(Args, Clone, Debug)]
pub(crate) struct AbArgs {
    /// Pairs of samples for each line.
    #[arg(long, default_value = "15")]
    pairs: NonZeroUsize,
    /// The duration of a sample of calls, in milliseconds.
    #[arg(long, default_value_t = 500)]
    sample: u64,
}

/// An implementation of HTTP/2.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Speaker {
    Own,
    H2,
}

impl From<Speaker> for Backend {
    fn from(speaker: Speaker) -> Self {
        match speaker {
            Speaker::Own => Self::Own,
            Speaker::H2 => Self::H2,
        }
    }
}

const BOTH: [Speaker; 2] = [Speaker::Own, Speaker::H2];

pub(crate) async fn run(args: AbArgs) -> Result<(), BenchError> {
    println!("| | crowfly-http2 | h2 | |");
    println!("|---|---|---|---|");
    let (address, _backend) = backend().await?;
    memory(address)?;
    calls(address, &args).await?;
    throughput(address, &args).await?;
    losses().await
}

/// A server with the test service, in a process of its own.
async fn backend() -> Result<(SocketAddr, Child), BenchError> {
    let args = ["backend", "--name", "ab", "--log", "warn"];
    let mut child = Program::current()?.spawn("ab", args, None)?;
    Ok((child.announced("listening on").await?, child))
}

fn memory(address: SocketAddr) -> Result<(), BenchError> {
    let mut bytes = [0.0; 2];
    for (speaker, bytes) in BOTH.into_iter().zip(&mut bytes) {
        *bytes = idle::in_a_process(speaker, address)?;
    }
    let [own, h2] = bytes.map(|bytes| bytes / 1_000.0);
    let ratio = own / h2;
    let what = format!("memory of an idle connection, of {}", idle::CONNECTIONS);
    println!("| {what} | {own:.1} kB | {h2:.1} kB | {ratio:.2} |");
    Ok(())
}

async fn calls(address: SocketAddr, args: &AbArgs) -> Result<(), BenchError> {
    let plan = SamplingPlan {
        pairs: args.pairs,
        sample: Duration::from_millis(args.sample),
        concurrency: [1, 64].into_iter().filter_map(NonZeroUsize::new).collect(),
    };
    let own = Over::connect(address, Speaker::Own).await?;
    let h2 = Over::connect(address, Speaker::H2).await?;
    compare("h2", &own, &h2, &plan, |run| {
        let (concurrency, own, h2) = (run.concurrency, run.rps, run.peer_rps);
        let ratio = format!("{:.2} (IQR {:.2})", run.ratio, run.iqr);
        println!("| calls/s, {concurrency} at a time | {own:.0} | {h2:.0} | {ratio} |");
    })
    .await?;
    Ok(())
}

async fn throughput(address: SocketAddr, args: &AbArgs) -> Result<(), BenchError> {
    let own = Over::connect(address, Speaker::Own).await?;
    let h2 = Over::connect(address, Speaker::H2).await?;
    for (what, direction) in [("download", streams::Download), ("upload", streams::Upload)] {
        let mut pairs = Vec::new();
        for number in 0..=args.pairs.get() {
            let pair = match number % 2 {
                0 => {
                    let rate = streams::rate(&own, direction).await?;
                    (rate, streams::rate(&h2, direction).await?)
                }
                _ => {
                    let rate = streams::rate(&h2, direction).await?;
                    (streams::rate(&own, direction).await?, rate)
                }
            };
            // The first only warms both up.
            if number > 0 {
                pairs.push(pair);
            }
        }
        let ratios = Quartiles::of(pairs.iter().map(|(own, h2)| own / h2));
        let own = Quartiles::of(pairs.iter().map(|pair| pair.0)).median;
        let h2 = Quartiles::of(pairs.iter().map(|pair| pair.1)).median;
        let ratio = format!("{:.2} (IQR {:.2})", ratios.median, ratios.range());
        println!("| one {what}, MB/s | {own:.0} | {h2:.0} | {ratio} |");
    }
    Ok(())
}

async fn losses() -> Result<(), BenchError> {
    let mut idle = [kill::Losses::default(); 2];
    let mut busy = [kill::Losses::default(); 2];
    for _ in 0..kill::ROUNDS {
        for (at, speaker) in BOTH.into_iter().enumerate() {
            idle[at] += kill::idle(speaker).await?;
            busy[at] += kill::busy(speaker).await?;
        }
    }
    let [own, h2] = idle;
    println!(
        "| lost in a kill, of calls begun right after it on idle connections | {own} | {h2} | |"
    );
    let [own, h2] = busy;
    println!(
        "| lost in a kill, of calls begun before it or right after it, 64 at a time | {own} | {h2} | |"
    );
    Ok(())
}
