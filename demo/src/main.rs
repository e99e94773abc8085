//! Several processes share one lock, while one after the other is killed or frozen. What `make demo` runs.
//!
//! ```text
//! demo [--seconds N] [--workers N] [--separate-locks]
//! ```
//!
//! The address of the server is in `$ONELOCK_URL`. The exit code is 0 when every check passed, 1 when one failed, 2 when
//! the demo could not run, 130 after Ctrl-C.
//!
//! | file | what |
//! |---|---|
//! | `worker` | a process that takes the lock and adds one to the counter: read this one first |
//! | `ledger` | the counter in a file, and its token check |
//! | `trouble` | decides whom to kill or freeze |
//! | `tally`, `report` | check what the workers reported, and show it |
//! | `crew`, `event`, `clock`, `screen` | processes, their reports, their common clock, the terminal |

mod clock;
mod crew;
mod event;
mod ledger;
mod report;
mod screen;
mod tally;
mod trouble;
mod worker;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crate::clock::now_us;
use crate::crew::Crew;
use crate::event::Event;
use crate::ledger::Ledger;
use crate::screen::{Colour, Screen, number, span};
use crate::tally::Tally;
use crate::trouble::{Deed, Scene, Troublemaker};
use crate::worker::{Job, TTL};

/// How long the part without a lock takes.
const UNGUARDED: Duration = Duration::from_secs(1);
/// No disturbance begins in the last seconds, so that each is seen to its end.
const LAST_CALL_US: u64 = 2_000_000;
/// How long the end waits for a disturbance that is going on.
const OVERTIME_US: u64 = 15_000_000;

struct Settings {
    seconds: u64,
    workers: usize,
    /// Plants the mistake that the checks are for: every worker locks a name of its own.
    separate_locks: bool,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [word, number, lock, ledger] = arguments.as_slice()
        && word == "worker"
    {
        let job = Job { lock: lock.clone(), ledger: PathBuf::from(ledger) };
        if let Err(error) = worker::run(number.parse().unwrap_or(0), &job) {
            worker::say(&Event::Failed(error.to_string()));
            return ExitCode::FAILURE;
        }
        return ExitCode::SUCCESS;
    }
    let outcome = settings(&arguments).and_then(|settings| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(play(&settings))
    });
    outcome.unwrap_or_else(|error| {
        Screen::new().line(format!("demo: {error}"));
        ExitCode::from(2)
    })
}

fn settings(arguments: &[String]) -> Result<Settings, Box<dyn Error>> {
    let mut settings = Settings { seconds: 25, workers: 6, separate_locks: false };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a number"));
        match argument.as_str() {
            "--seconds" => settings.seconds = value()?.parse()?,
            "--workers" => settings.workers = value()?.parse()?,
            "--separate-locks" => settings.separate_locks = true,
            other => return Err(format!("{other} is not known; use --seconds N or --workers N").into()),
        }
    }
    if settings.workers < 2 || settings.seconds < 1 {
        return Err("at least 2 workers and 1 second are needed".into());
    }
    Ok(settings)
}

/// The whole play, from the greeting to the table.
async fn play(settings: &Settings) -> Result<ExitCode, Box<dyn Error>> {
    let mut screen = Screen::new();
    let url = std::env::var(onelock::URL_VARIABLE).unwrap_or_default();
    if url.is_empty() || url.starts_with("memory:") {
        return Err(format!(
            "set {} to a server that processes can share; `make demo` starts one",
            onelock::URL_VARIABLE
        )
        .into());
    }
    let folder = tempfile::tempdir()?;
    let name = format!("onelock-demo:{}:{}", std::process::id(), now_us());

    let client = onelock::Client::connect(&url).await?;
    let facts = client.check().await?;
    client.close().await;
    screen.line(screen.paint(Colour::Bold, format!("{} processes, one lock, one counter in a file", settings.workers)));
    screen.line(format!(
        "  server  {} at {}, fencing grade {}",
        facts.server,
        without_password(&url),
        facts.grade.as_str()
    ));
    screen.line(format!("  lock    {name}, leases of {TTL:?}, renewed in the background"));
    for warning in &facts.warnings {
        screen.line(screen.paint(Colour::Faint, format!("  note    {warning}")));
    }

    let interrupt = tokio::signal::ctrl_c();
    tokio::pin!(interrupt);
    let lock_names = lock_names(settings, &name);
    let played = tokio::select! {
        lost = without_lock(&mut screen, settings, &url, folder.path()) => lost.map(Some),
        _ = &mut interrupt => Ok(None),
    };
    let outcome = match played? {
        None => Ok(ExitCode::from(130)),
        Some(0) => Err("nothing was lost without the lock, so this machine cannot show what a lock is for".into()),
        Some(_) => with_lock(&mut screen, settings, &url, folder.path(), &lock_names, interrupt).await,
    };
    if let Err(error) = free_locks(&url, &lock_names).await {
        screen.line(format!("  the keys of {name} were left on the server and end by themselves: {error}"));
    }
    outcome
}

fn lock_names(settings: &Settings, name: &str) -> Vec<String> {
    let each = |worker| if settings.separate_locks { format!("{name}:{worker}") } else { name.to_owned() };
    (0..settings.workers).map(each).collect()
}

/// First the work without a lock, so that it is seen what the lock is for. Returns how many increments were lost.
async fn without_lock(
    screen: &mut Screen,
    settings: &Settings,
    url: &str,
    folder: &Path,
) -> Result<u64, Box<dyn Error>> {
    let job = Job { lock: String::new(), ledger: folder.join("unguarded") };
    let ledger = Ledger::create(&job.ledger)?;
    let mut tally = Tally::new(settings.workers);
    let mut crew = Crew::start(url, &vec![job; settings.workers])?;
    let curtain = tokio::time::sleep(UNGUARDED);
    tokio::pin!(curtain);
    loop {
        tokio::select! {
            (worker, event) = crew.next() => tally.hear(worker, event),
            () = &mut curtain => break,
        }
    }
    for (worker, event) in crew.end().await? {
        tally.hear(worker, event);
    }
    if let Some(failure) = tally.failures.first() {
        return Err(failure.clone().into());
    }
    let counter = ledger.counter()?;
    let lost = tally.increments.saturating_sub(counter);
    screen.line("");
    screen.line(screen.paint(Colour::Bold, "Without the lock"));
    let share = format!("{} lost", number(lost));
    screen.line(format!(
        "  {} increments made in {UNGUARDED:?}, {} in the file: {}",
        number(tally.increments),
        number(counter),
        screen.paint(Colour::Red, share)
    ));
    Ok(lost)
}

/// The play itself: work under the lock, with disturbances.
async fn with_lock(
    screen: &mut Screen,
    settings: &Settings,
    url: &str,
    folder: &Path,
    lock_names: &[String],
    interrupt: impl Future<Output = std::io::Result<()>>,
) -> Result<ExitCode, Box<dyn Error>> {
    let path = folder.join("guarded");
    let ledger = Ledger::create(&path)?;
    let jobs: Vec<Job> = lock_names.iter().map(|lock| Job { lock: lock.clone(), ledger: path.clone() }).collect();
    screen.line("");
    screen.line(screen.paint(Colour::Bold, "With the lock"));
    let mut stage = Stage {
        screen,
        tally: Tally::new(settings.workers),
        crew: Crew::start(url, &jobs)?,
        began: now_us(),
        seconds: settings.seconds,
    };
    let complete = stage.run(interrupt).await?;
    for (worker, event) in stage.crew.end().await? {
        stage.tally.hear(worker, event);
    }
    let Stage { tally, screen, .. } = stage;
    if !complete && tally.failures.is_empty() {
        screen.line("  interrupted; this is what was found until now");
    }
    let right = report::show(screen, &tally, ledger.counter()?, complete);
    Ok(match (right, complete) {
        (true, true) => ExitCode::SUCCESS,
        (true, false) => ExitCode::from(130),
        (false, _) => ExitCode::FAILURE,
    })
}

struct Stage<'a> {
    screen: &'a mut Screen,
    tally: Tally,
    crew: Crew,
    began: u64,
    seconds: u64,
}

impl Stage<'_> {
    /// Runs until the time is up; false when it was interrupted or went wrong before.
    async fn run(&mut self, interrupt: impl Future<Output = std::io::Result<()>>) -> Result<bool, Box<dyn Error>> {
        let ends = self.began + self.seconds * 1_000_000;
        let mut trouble = Troublemaker::new(self.crew.size(), self.began, ends.saturating_sub(LAST_CALL_US));
        let mut tick = tokio::time::interval(Duration::from_millis(20));
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        seconds.tick().await; // the first is due at once
        tokio::pin!(interrupt);
        loop {
            let mut deed = None;
            tokio::select! {
                biased;
                _ = &mut interrupt => return Ok(false),
                _ = seconds.tick() => self.show_status(),
                _ = tick.tick() => {
                    let now = now_us();
                    if now >= ends && (trouble.is_done() || now >= ends + OVERTIME_US) {
                        break;
                    }
                    deed = trouble.tick(now);
                }
                (worker, event) = self.crew.next() => {
                    let now = now_us();
                    let (todo, scene) = trouble.hear(worker, &event, now);
                    deed = todo;
                    self.tally.hear(worker, event);
                    self.show_scene(scene);
                    if !self.tally.failures.is_empty() {
                        return Ok(false);
                    }
                }
            }
            if let Some(deed) = deed {
                self.carry_out(deed).await?;
            }
        }
        if !trouble.is_done() {
            self.tally.failures.push("a disturbance did not come to its end".to_owned());
        }
        Ok(true)
    }

    async fn carry_out(&mut self, deed: Deed) -> std::io::Result<()> {
        match deed {
            Deed::Stall(worker) => self.crew.stall(worker).await,
            Deed::Kill(worker) => {
                let at = now_us();
                self.crew.kill(worker).await?;
                self.tally.killed(worker, at);
                Ok(())
            }
            Deed::Replace(worker) => self.crew.replace(worker),
            Deed::Stop(worker) => {
                self.crew.stop(worker)?;
                self.tally.stopped(worker, now_us());
                Ok(())
            }
            Deed::Wake(worker) => self.crew.wake(worker).await,
        }
    }

    fn show_status(&mut self) {
        let elapsed = (now_us() - self.began) / 1_000_000;
        let holder = self.tally.holder.map_or("nobody".to_owned(), |worker| format!("worker {worker}"));
        let Tally { increments, kills, stops, .. } = &self.tally;
        self.screen.status(format!(
            "  {elapsed:2} s of {}   {} increments   {} holds   {kills} killed   {stops} stopped   held by {holder}",
            self.seconds,
            number(*increments),
            number(self.tally.holds() as u64),
        ));
    }

    fn show_scene(&mut self, scene: Option<Scene>) {
        let Some(scene) = scene else { return };
        let text = match scene {
            Scene::Killed { worker } => {
                format!("kill -9    worker {worker} (process {}) while it holds the lock", self.crew.pid(worker))
            }
            Scene::Stopped { worker } => {
                format!("freeze     worker {worker} (process {}) while it holds the lock", self.crew.pid(worker))
            }
            Scene::TakenOver { by, after_us, .. } => format!("hand-over  worker {by} has it {} later", span(after_us)),
            Scene::Woke { worker, held, refused } => {
                let fate = if refused { "refused" } else { "TAKEN" };
                format!("wake       worker {worker}: is_held() says {held}; it writes all the same, and is {fate}")
            }
        };
        let elapsed = format!("{:4.1} s", (now_us() - self.began) as f64 / 1e6);
        self.screen.line(format!("  {}  {text}", self.screen.paint(Colour::Faint, elapsed)));
    }
}

/// Frees what a killed worker may have left. The fencing counters stay: they end by themselves after seven days.
async fn free_locks(url: &str, lock_names: &[String]) -> Result<(), onelock::Error> {
    let client = onelock::Client::connect(url).await?;
    for name in lock_names {
        client.force_release(name).await?; // a worker that had to be killed at the end may have left it
    }
    client.close().await;
    Ok(())
}

/// The address without user, password and options.
fn without_password(url: &str) -> String {
    let address = url.split('?').next().unwrap_or_default();
    match (address.split_once("://"), address.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, place))) => format!("{scheme}://{place}"),
        _ => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_shown_without_its_secrets() {
        for (url, shown) in [
            ("redis://127.0.0.1:1/", "redis://127.0.0.1:1/"),
            ("redis://user:p@ss@host/1", "redis://host/1"),
            ("unix:///run/redis.sock?password=secret", "unix:///run/redis.sock"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }
}
