//! `crowfly demo`: sets the stage, runs the show, and judges it.

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
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval},
};
use tonic::metadata::MetadataMap;

use super::{
    DemoError, SERVICE,
    admin::Admin,
    cast::{Cast, Control, DELAY},
    config::{self, ConfigFile},
    director::{Account, Director},
    rates::Rates,
    scene::Scene,
    verdict::Verdict,
    view::{Frame, View},
};
use crate::{
    args,
    child::Program,
    debug::DebugPort,
    load::{self, Generator, Report, Stats},
    output, screen,
    signal::Termination,
};

/// The deadline of a call; none should come near it.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Less would not leave a backend the time to return.
const MIN_DURATION: Duration = Duration::from_secs(10);

/// See it work: a control plane, six backends in three zones, a client, and trouble
///
/// Everything runs on this machine, on loopback ports that the kernel chooses, and ends with the
/// command. By itself, one backend is stopped and drains, one is killed, both return, a zone's
/// weight changes, and a bad configuration is pushed and refused, while calls go on. What the client
/// does can be looked at from another terminal: it names a port for `crowfly inspect`.
///
/// Exits with 0 if no call failed, and no more calls were lost than were open on the backend that
/// was killed.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  crowfly demo
  crowfly demo --duration 20s --plain --json")]
pub struct DemoArgs {
    /// How long it takes; at least 10s
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = demo_duration,
          env = "CROWFLY_DEMO_DURATION")]
    pub duration: Duration,

    /// Calls per second
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
    /// Whether it draws a screen, which nothing else may write on.
    pub(crate) fn draws(&self) -> bool {
        !self.plain && io::stdout().is_terminal() && !screen::is_dumb()
    }
}

/// Shows the demo.
///
/// # Errors
/// It could not be set up, or a child failed. That the show went wrong is not an error but the exit
/// code.
pub async fn run(args: DemoArgs) -> Result<ExitCode, DemoError> {
    let termination = Termination::listen().map_err(DemoError::Signals)?;
    let directory = tempfile::tempdir().map_err(DemoError::Config)?;
    let stage = Stage::set(directory.path()).await?;
    let view = View::new(!args.draws())?;
    let Shown {
        report,
        stats,
        account,
    } = stage.show(&args, view, termination).await?;

    if !args.json {
        output::line(&report);
        output::line(own_latency());
    }
    // Ended early by the user, it had no chance to prove anything.
    let verdict = account.map(|account| Verdict::new(&report, &stats, &account));
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

/// All that is there before the first call.
struct Stage {
    cast: Cast,
    control: Control,
    config: ConfigFile,
    channel: Channel,
    debug: DebugPort,
}

/// What is left when the show is over.
struct Shown {
    report: Report,
    stats: Arc<Stats>,
    /// Absent if it was ended early.
    account: Option<Account>,
}

type Play = JoinHandle<Result<(Cast, Account), DemoError>>;

impl Stage {
    async fn set(directory: &Path) -> Result<Self, DemoError> {
        let program = Program::current()?;
        let cast = Cast::start(program.clone(), directory).await?;
        let config = ConfigFile::new(directory);
        config
            .replace(&config::good(&cast.zones()))
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
            cast,
            control,
            config,
            channel,
            debug,
        })
    }

    async fn show(
        self,
        args: &DemoArgs,
        mut view: View,
        mut termination: Termination,
    ) -> Result<Shown, DemoError> {
        let Self {
            cast,
            control,
            config,
            channel,
            debug,
        } = self;
        let start = Instant::now();
        let mut scene = opening(&cast, &control, args.rps, start);
        scene.say(format!(
            "look inside: crowfly inspect --tree {0}, or --csds {0}",
            debug.addr()
        ));
        let (scene, mut scenes) = watch::channel(scene);
        let mut generator = Generator::start(&channel, load_options(args));
        let stats = Arc::clone(generator.stats());
        let admin = Admin(control.admin);
        let director = Director {
            cast,
            config,
            admin,
            stats: Arc::clone(&stats),
            scene,
        };
        let mut play: Play = tokio::spawn(director.play(start, args.duration));

        let mut rates = Rates::default();
        let mut ticks = interval(view.period());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ended_early = false;
        view.news(&scenes.borrow_and_update());
        let report = loop {
            tokio::select! {
                report = generator.finished() => break report,
                Ok(()) = scenes.changed() => view.news(&scenes.borrow_and_update()),
                _ = ticks.tick() => {
                    let report = stats.report();
                    rates.add(Instant::now().into_std(), report.by_backend.clone());
                    let tree = channel.tree().await;
                    view.draw(&Frame {
                        scene: &scenes.borrow(),
                        report: &report,
                        rates: &rates,
                        tree: &tree,
                        elapsed: start.elapsed(),
                        duration: args.duration,
                    })?;
                }
                () = quit(&mut view, &mut termination), if !ended_early => {
                    ended_early = true;
                    generator.stop();
                }
            }
        };
        if ended_early {
            play.abort();
            view.close(&scenes.borrow_and_update());
            return Ok(Shown {
                report,
                stats,
                account: None,
            });
        }
        let (_cast, account) = (&mut play).await??;
        view.close(&scenes.borrow_and_update());
        Ok(Shown {
            report,
            stats,
            account: Some(account),
        })
    }
}

fn opening(cast: &Cast, control: &Control, rps: u32, start: Instant) -> Scene {
    let mut scene = Scene {
        start: start.into_std(),
        zones: cast.zones(),
        log: Vec::new(),
    };
    scene.say(format!(
        "control plane on {} (its pages: http://{}), six backends in three zones",
        control.listen, control.admin
    ));
    scene.say(format!(
        "{rps} calls per second to xds:///{SERVICE}, no proxy in between"
    ));
    scene
}

/// Said wherever a latency is shown, or it would be taken for the channel's.
pub(super) fn own_latency() -> String {
    format!(
        "{} ms of each latency are the backends' own",
        DELAY.as_millis()
    )
}

fn load_options(args: &DemoArgs) -> load::Options {
    load::Options {
        rps: args.rps,
        concurrency: 256,
        duration: args.duration,
        timeout: TIMEOUT,
        metadata: MetadataMap::new(),
        wait_for_ready: false,
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
