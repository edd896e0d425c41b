//! `crowfly demo`: starts the processes, sends calls while things break, and checks the result.
//!
//! The exit code tells the result, so that a script or CI can run the demo as a test.

use std::{
    io::{self, IsTerminal},
    net::SocketAddr,
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::Args;
use crowfly::{Bootstrap, Channel};
use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, interval},
};
use tonic::metadata::MetadataMap;

use super::{
    DemoError, SERVICE,
    admin::Admin,
    config::{self, ConfigFile},
    processes::{Backends, Control, DELAY},
    rates::Rates,
    runner::{Findings, Runner},
    state::DemoState,
    verdict::Verdict,
    view::{Frame, View},
};
use crate::{
    args,
    child::Program,
    debug::DebugPort,
    load::{Generator, LoadOptions, Report, Stats},
    output, screen,
    signal::Termination,
};

/// The deadline of a call. The deadline is long, because no call of the demo should come near it.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The shortest demo: less would leave a backend no time to return.
const MIN_DURATION: Duration = Duration::from_secs(10);

/// See it work: a control plane, six backends in three zones, a client, and trouble
///
/// Everything runs on this machine, on loopback ports that the kernel chooses, and ends with the
/// command. One backend is stopped and drains, one is killed, and both return. A zone's weight
/// changes, and a bad configuration is pushed and refused. Calls go on all the time. The demo
/// prints a port for `crowfly inspect`, so that you can look inside the client from another
/// terminal.
///
/// Exits with 0 if no call failed, and no more calls were lost than were open on the backend that
/// was killed.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  crowfly demo
  crowfly demo --duration 20s --plain --json
  sudo crowfly demo --node")]
pub struct DemoArgs {
    /// Show the node agent instead: connections to a ClusterIP, by eBPF; needs Linux and root
    ///
    /// It makes a network namespace and a cgroup, and removes them at the end. A backend is killed, the
    /// weights of zones change, the agent is killed and returns, and a bad file is refused. It prints
    /// lines, and exits with 0 if no connection failed but on the killed backend.
    #[arg(long, env = "CROWFLY_DEMO_NODE")]
    pub node: bool,

    /// The duration; at least 10s
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = demo_duration,
          env = "CROWFLY_DEMO_DURATION")]
    pub duration: Duration,

    /// Calls per second; with --node, connections per second
    #[arg(long, value_name = "N", default_value = "300",
          value_parser = clap::value_parser!(u32).range(1..), env = "CROWFLY_DEMO_RPS")]
    pub rps: u32,

    /// Print lines instead of a screen; the default when standard output is no terminal, or a dumb one
    #[arg(long, env = "CROWFLY_DEMO_PLAIN")]
    pub plain: bool,

    /// Print the report of the calls as JSON, on the last line
    #[arg(long, env = "CROWFLY_DEMO_JSON")]
    pub json: bool,
}

impl DemoArgs {
    /// True if the demo draws a screen. Then nothing else may write on the terminal.
    pub(crate) fn draws(&self) -> bool {
        !self.plain && !self.node && io::stdout().is_terminal() && !screen::is_dumb()
    }
}

/// Runs the demo.
///
/// # Errors
/// The demo could not be set up, or a child failed. Calls that failed are no error, but exit code 1.
pub async fn run(args: DemoArgs) -> Result<ExitCode, DemoError> {
    if args.node {
        #[cfg(target_os = "linux")]
        return super::node::run(&args).await;
        #[cfg(not(target_os = "linux"))]
        return Err(DemoError::NotLinux);
    }
    let termination = Termination::listen().map_err(DemoError::Signals)?;
    let directory = tempfile::tempdir().map_err(DemoError::Config)?;
    let setup = Setup::start(directory.path()).await?;
    let view = View::new(!args.draws())?;
    let Finished {
        report,
        stats,
        findings,
    } = setup.run(&args, view, termination).await?;

    if !args.json {
        output::line(&report);
        output::line(own_latency());
    }
    // There is no verdict on a demo that the user ended early.
    let verdict = findings.map(|findings| Verdict::new(&report, &stats, &findings));
    if let Some(verdict) = &verdict {
        output::line(verdict);
    }
    if args.json {
        output::line(report.to_json());
    }
    Ok(match verdict {
        Some(verdict) if !verdict.is_good() => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

/// The processes, files and ports of the demo, before the first call.
struct Setup {
    backends: Backends,
    control: Control,
    config: ConfigFile,
    channel: Channel,
    debug: DebugPort,
}

/// The results of a demo that has ended.
struct Finished {
    report: Report,
    stats: Arc<Stats>,
    /// Absent if the user ended the demo early, because then not every step was taken.
    findings: Option<Findings>,
}

impl Setup {
    async fn start(directory: &Path) -> Result<Self, DemoError> {
        let program = Program::current()?;
        let backends = Backends::start(program.clone(), directory).await?;
        let config = ConfigFile::new(directory);
        config
            .replace(&config::good(&backends.zones()))
            .map_err(DemoError::Config)?;
        let control = Control::start(&program, directory, config.path()).await?;
        let bootstrap = Bootstrap::builder(&control.listen.to_string())?
            .node_id("crowfly-demo")
            .build();
        let channel = Channel::builder(&format!("xds:///{SERVICE}"))
            .bootstrap(bootstrap)
            .build()?;
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let debug = DebugPort::open(any).await.map_err(DemoError::Debug)?;
        Ok(Self {
            backends,
            control,
            config,
            channel,
            debug,
        })
    }

    /// Sends calls and takes the steps of the timeline until the time is up or the user quits.
    async fn run(
        self,
        args: &DemoArgs,
        view: View,
        termination: Termination,
    ) -> Result<Finished, DemoError> {
        let start = Instant::now();
        let (state, states) = watch::channel(self.first_state(args.rps, start));
        let generator = Generator::start(&self.channel, load_options(args));
        let stats = Arc::clone(generator.stats());
        let runner = Runner {
            backends: self.backends,
            config: self.config,
            admin: Admin(self.control.admin),
            stats: Arc::clone(&stats),
            state,
        };
        let steps = tokio::spawn(runner.run(start, args.duration));
        let mut live = Live {
            view,
            states,
            channel: self.channel,
            stats: Arc::clone(&stats),
            rates: Rates::default(),
            start,
            duration: args.duration,
        };
        let (report, ended_early) = live.follow(generator, termination).await?;
        // The backends live until the last line is printed.
        let (_backends, findings) = if ended_early {
            steps.abort();
            (None, None)
        } else {
            let (backends, findings) = steps.await??;
            (Some(backends), Some(findings))
        };
        live.close();
        Ok(Finished {
            report,
            stats,
            findings,
        })
    }

    fn first_state(&self, rps: u32, start: Instant) -> DemoState {
        let mut state = DemoState {
            start: start.into_std(),
            zones: self.backends.zones(),
            log: Vec::new(),
        };
        state.say(format!(
            "control plane on {} (its pages: http://{}), six backends in three zones",
            self.control.listen, self.control.admin
        ));
        state.say(format!(
            "{rps} calls per second to xds:///{SERVICE}, no proxy in between"
        ));
        state.say(format!(
            "look inside: crowfly inspect --tree {0}, or --csds {0}",
            self.debug.addr()
        ));
        state
    }
}

/// The view of a running demo, and the sources that it shows.
struct Live {
    view: View,
    states: watch::Receiver<DemoState>,
    channel: Channel,
    stats: Arc<Stats>,
    rates: Rates,
    start: Instant,
    duration: Duration,
}

impl Live {
    /// Shows the demo until every call has ended. Returns the report, and whether the user quit.
    async fn follow(
        &mut self,
        mut generator: Generator,
        mut termination: Termination,
    ) -> Result<(Report, bool), DemoError> {
        let mut ticks = interval(self.view.period());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ended_early = false;
        self.view.news(&self.states.borrow_and_update());
        loop {
            tokio::select! {
                report = generator.finished() => return Ok((report, ended_early)),
                Ok(()) = self.states.changed() => self.view.news(&self.states.borrow_and_update()),
                _ = ticks.tick() => self.draw().await?,
                () = quit(&mut self.view, &mut termination), if !ended_early => {
                    ended_early = true;
                    generator.stop();
                }
            }
        }
    }

    async fn draw(&mut self) -> Result<(), DemoError> {
        let report = self.stats.report();
        self.rates
            .add(Instant::now().into_std(), report.by_backend.clone());
        let tree = self.channel.tree().await;
        self.view.draw(&Frame {
            state: &self.states.borrow(),
            report: &report,
            rates: &self.rates,
            tree: &tree,
            elapsed: self.start.elapsed(),
            duration: self.duration,
        })
    }

    fn close(mut self) {
        self.view.close(&self.states.borrow_and_update());
    }
}

/// The share of the backends in each latency. The share is printed beside every latency, because a
/// reader would take the whole latency for the channel's.
pub(super) fn own_latency() -> String {
    format!(
        "{} ms of each latency are the backends' own",
        DELAY.as_millis()
    )
}

fn load_options(args: &DemoArgs) -> LoadOptions {
    LoadOptions {
        rps: args.rps,
        concurrency: 256,
        duration: args.duration,
        timeout: TIMEOUT,
        metadata: MetadataMap::new(),
        wait_for_ready: false,
        sessions: 0,
    }
}

async fn quit(view: &mut View, termination: &mut Termination) {
    tokio::select! {
        () = view.quit() => {}
        () = termination.recv() => {}
    }
}

fn demo_duration(text: &str) -> Result<Duration, String> {
    let duration = args::duration(text)?;
    if duration < MIN_DURATION {
        return Err("expected at least 10s: a backend needs time to return".to_owned());
    }
    Ok(duration)
}
