//! `crowfly loads`: its flags, and the choice between one table and a table that follows the loads.
//!
//! A control plane that does not answer is an error only at first, because one that was there may
//! soon be back.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use clap::Args;
use crowfly_control::loads::Loads;
use tokio::time::{MissedTickBehavior, interval};

use super::{LoadsError, table::Table, view::View};
use crate::{address::Address, admin_page, args, output, screen, signal::Termination};

/// Show the loads that clients report to a control plane
///
/// Each row has the calls from the clients in one locality to the backends of a service in one
/// locality. The table is drawn again every two seconds, or as --every says, until q or Ctrl-C. If
/// standard output is no terminal, the tables are printed one below the other.
///
/// Calls, errors and drops per second, and calls in flight, are those of the last report of each
/// client. The other figures are totals since the control plane started. A dropped call reached no
/// backend, so the drops of a service have a row of their own.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  crowfly loads
  crowfly loads --admin 10.0.0.1:18001 --service payments
  crowfly loads --once
  crowfly loads --json | jq '.rows[] | select(.errors > 0)'")]
pub struct LoadsArgs {
    /// The admin port of the control plane
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:18001",
        env = "CROWFLY_LOADS_ADMIN"
    )]
    pub admin: Address,

    /// Only this service; may be given several times
    #[arg(long, value_name = "NAME")]
    pub service: Vec<String>,

    /// Print one table and exit
    #[arg(long)]
    pub once: bool,

    /// Print one JSON object with all figures and exit
    #[arg(long, conflicts_with = "once")]
    pub json: bool,

    /// The time between two tables
    #[arg(long, value_name = "DURATION", default_value = "2s",
          value_parser = args::positive_duration)]
    pub every: Duration,

    /// The time to wait for an answer
    #[arg(long, value_name = "DURATION", default_value = "10s",
          value_parser = args::positive_duration)]
    pub timeout: Duration,
}

impl LoadsArgs {
    /// True if the table is drawn on the whole terminal.
    pub(crate) fn draws(&self) -> bool {
        !self.once && !self.json && io::stdout().is_terminal() && !screen::is_dumb()
    }

    /// Reads the loads of the services that were asked for.
    async fn read(&self) -> Result<Loads, LoadsError> {
        let mut loads: Loads = admin_page::read(&self.admin, "/loads", self.timeout).await?;
        if !self.service.is_empty() {
            loads.rows.retain(|row| self.service.contains(&row.service));
        }
        Ok(loads)
    }
}

/// Shows the loads.
///
/// # Errors
/// The control plane does not answer at first. Later failures are shown, and the control plane is
/// asked again.
pub async fn run(args: LoadsArgs) -> Result<(), LoadsError> {
    let loads = args.read().await?;
    if args.json {
        // The value came from JSON, so it can be written as JSON.
        output::line(serde_json::to_string_pretty(&loads).unwrap_or_default());
        return Ok(());
    }
    let table = Table::new(&loads, &args.service);
    if args.once {
        output::line(table);
        return Ok(());
    }
    let mut view = View::open(args.draws()).map_err(LoadsError::Terminal)?;
    follow(&args, table, &mut view).await
}

/// Shows the loads until the user quits.
async fn follow(args: &LoadsArgs, table: Table, view: &mut View) -> Result<(), LoadsError> {
    let mut termination = Termination::listen().map_err(LoadsError::Signals)?;
    let mut ticks = interval(args.every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first tick is due at once, and the first table is here.
    ticks.tick().await;
    let mut table = table;
    view.show(&table).map_err(LoadsError::Terminal)?;
    loop {
        tokio::select! {
            () = termination.recv() => return Ok(()),
            () = view.quit() => return Ok(()),
            _ = ticks.tick() => {}
        }
        match args.read().await {
            Ok(loads) => table = Table::new(&loads, &args.service),
            // The control plane may be back soon.
            Err(error) => table.fail(&error),
        }
        view.show(&table).map_err(LoadsError::Terminal)?;
    }
}
