//! Answers to requests: each is done or shown by the module that knows about it.

use super::api::{Answer, MAX_ROWS, Request, ShowRequest, Topic};
use super::baseline::Baseline;
use super::state::State;
use common::time::Time;

impl State {
    /// Answers a request.
    ///
    /// # Errors
    /// Why it was not done.
    pub fn answer(&mut self, request: &Request, now: Time) -> Result<Answer, String> {
        Ok(match request {
            Request::ClearWatermarks => {
                self.clear_watermarks();
                Answer::Done
            }
            Request::Hold(hold) => {
                self.hold(hold)?;
                Answer::Done
            }
            Request::EnablePfc { port, priority } => {
                self.enable_pfc(port, *priority)?;
                Answer::Done
            }
            Request::DeleteJob { job } => {
                self.delete_job(*job)?;
                Answer::Done
            }
            Request::Trace(_) => {
                return Err("a trace takes time: it has its own answer".to_owned());
            }
            Request::CreateJob(_) => {
                return Err("a worker reserves a job: it has its own answer".to_owned());
            }
            Request::Reload => Answer::Reloaded(self.reload()?),
            Request::ClearCounters => {
                self.baseline = Baseline::new(
                    self.all_ports(),
                    self.all_queues(now),
                    self.all_drops(),
                    self.all_pfc(now, false),
                );
                Answer::Done
            }
            Request::Show(show) => {
                let limit = show.limit.unwrap_or(MAX_ROWS).min(MAX_ROWS);
                self.show(show, limit, now)?
            }
        })
    }

    fn show(&self, show: &ShowRequest, limit: usize, now: Time) -> Result<Answer, String> {
        let names = &show.names;
        if !names.is_empty() && !matches!(show.topic, Topic::Ports | Topic::Workers) {
            return Err("names choose among ports and workers only".to_owned());
        }
        Ok(match show.topic {
            Topic::Status => Answer::Status(Box::new(self.status(now))),
            Topic::Ports => {
                let ports = self.ports_since_clear();
                Answer::Ports(only("port", ports, names, |row| row.name.clone())?)
            }
            Topic::Queues => Answer::Queues(self.queues_since_clear(now)),
            Topic::Routes => Answer::Routes(self.routes(show.prefix, limit)),
            Topic::Punted => Answer::Punted(self.punted(show.prefix, limit)),
            Topic::Nexthops => Answer::Nexthops(self.next_hops(limit)),
            Topic::Ecmp => Answer::Ecmp(self.groups(limit)),
            Topic::Flowlets => Answer::Flowlets(self.flowlets(limit)),
            Topic::Drops => Answer::Drops(self.drops_since_clear()),
            Topic::Workers => {
                let workers = self.worker_rows(now);
                Answer::Workers(only("worker", workers, names, |row| {
                    row.worker.to_string()
                })?)
            }
            Topic::Neighbours => Answer::Neighbours(self.neighbours(limit)),
            Topic::Buffer => Answer::Buffer(self.buffer()),
            Topic::Pg => Answer::Pg(self.priority_groups()),
            Topic::Headroom => Answer::Headroom(self.headroom()),
            Topic::Pfc => Answer::Pfc(self.pfc_since_clear(now)),
            Topic::Pfcwd => {
                let rows = self.watched(now);
                // Storms of a watchdog that was turned off are still told.
                let is_on = self.active.config.qos.watchdog.enabled || !rows.is_empty();
                on("the watchdog is", "qos.watchdog", is_on)?;
                Answer::Pfcwd(rows)
            }
            Topic::Events => {
                let skipped = self.events.iter().len().saturating_sub(limit);
                Answer::Events(self.events.iter().skip(skipped).cloned().collect())
            }
            Topic::Config => Answer::Config(self.active.report()),
            Topic::Bridge => Answer::Bridge(self.bridge_rows()),
            Topic::Csig => {
                on(
                    "congestion signals are",
                    "csig",
                    self.active.config.csig.enabled,
                )?;
                Answer::Csig(self.csig_rows(now))
            }
            Topic::Int => {
                on("telemetry is", "int", self.active.config.int.enabled)?;
                Answer::Int(self.int_rows())
            }
            Topic::Schedulers => {
                let known = self.schedulers.as_ref();
                let none = "nobody is asked: see [scheduling] in the configuration";
                Answer::Schedulers(known.ok_or(none)?.rows(now))
            }
            Topic::Flows => Answer::Flows(self.flow_rows(limit, now)?),
            Topic::Iqcn => Answer::Iqcn(self.iqcn_rows(limit, now)?),
            Topic::Aiecn => Answer::Aiecn(self.aiecn_report(now)),
            Topic::Jobs => Answer::Jobs(self.jobs()?),
            Topic::Fdb => Answer::Fdb(self.station_rows(limit)),
            Topic::Elephants => Answer::Elephants(self.elephants(limit)),
        })
    }
}

/// Refuses to show what is off: nothing to show would look as if nothing happened.
fn on(what: &str, section: &str, is_on: bool) -> Result<(), String> {
    match is_on {
        true => Ok(()),
        false => Err(format!("{what} off: see [{section}] in the configuration")),
    }
}

/// The rows that are called one of `names`; all if there are none.
///
/// # Errors
/// No row has one of the names.
fn only<T>(
    what: &str,
    mut rows: Vec<T>,
    names: &[String],
    name: impl Fn(&T) -> String,
) -> Result<Vec<T>, String> {
    for wanted in names {
        if !rows.iter().any(|row| name(row) == *wanted) {
            return Err(format!("no {what} is called {wanted:?}"));
        }
    }
    rows.retain(|row| names.is_empty() || names.contains(&name(row)));
    Ok(rows)
}
