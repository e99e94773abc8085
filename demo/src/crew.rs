//! The worker processes: starting, disturbing and ending them, and hearing what they report.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::event::Event;
use crate::worker::Job;

/// How long a worker may take to end when it is told to.
const END_LIMIT: Duration = Duration::from_secs(5);

struct Member {
    child: Child,
    orders: Option<ChildStdin>,
    pid: Pid,
    /// Grows with every process at this place that was killed: what an earlier one says last is not of interest.
    life: u64,
    /// Whether its output goes on.
    talks: bool,
}

pub(crate) struct Crew {
    jobs: Vec<Job>,
    url: String,
    members: Vec<Member>,
    sender: UnboundedSender<(usize, u64, Event)>,
    events: UnboundedReceiver<(usize, u64, Event)>,
    /// The worker whose output has ended and whose exit status is awaited.
    leaving: Option<usize>,
}

impl Crew {
    /// Starts one worker for each job; they find the server at `url`.
    pub(crate) fn start(url: &str, jobs: &[Job]) -> io::Result<Crew> {
        let (sender, events) = unbounded_channel();
        let (jobs, url) = (jobs.to_vec(), url.to_owned());
        let mut crew = Crew { jobs, url, members: Vec::new(), sender, events, leaving: None };
        for number in 0..crew.jobs.len() {
            let member = crew.spawn(number, 0)?;
            crew.members.push(member);
        }
        Ok(crew)
    }

    fn spawn(&self, number: usize, life: u64) -> io::Result<Member> {
        let job = &self.jobs[number];
        let mut child = Command::new(std::env::current_exe()?)
            .arg("worker")
            .args([&number.to_string(), &job.lock])
            .arg(&job.ledger)
            .env(onelock::URL_VARIABLE, &self.url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for the boss, who then ends the workers in good order
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let (orders, output) = (child.stdin.take(), child.stdout.take());
        let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let (Some(output), Some(pid)) = (output, pid) else {
            return Err(io::Error::other("a worker ended while it was started"));
        };
        tokio::spawn(pass_on(BufReader::new(output).lines(), number, life, self.sender.clone()));
        Ok(Member { child, orders, pid, life, talks: true })
    }

    /// The next thing that happens to a worker. Dropping the future loses nothing.
    pub(crate) async fn next(&mut self) -> (usize, Event) {
        loop {
            if let Some(number) = self.leaving {
                let status = self.members[number].child.wait().await;
                self.leaving = None;
                if !ended_well(status.as_ref()) {
                    return (number, Event::Failed(format!("it ended by itself: {status:?}")));
                }
            }
            let Some((number, life, event)) = self.events.recv().await else {
                // the crew holds a sender itself
                return std::future::pending().await;
            };
            if event != Event::Gone {
                // what a killed worker said before its end is true all the same
                return (number, event);
            }
            let member = &mut self.members[number];
            if member.life == life {
                member.talks = false;
                self.leaving = Some(number);
            }
        }
    }

    /// Asks a worker to stay in the middle of its next hold.
    pub(crate) async fn stall(&mut self, number: usize) -> io::Result<()> {
        self.order(number, "stall\n").await
    }

    /// Kills a worker (SIGKILL): it has no chance to clean up.
    pub(crate) async fn kill(&mut self, number: usize) -> io::Result<()> {
        let member = &mut self.members[number];
        member.life += 1;
        member.talks = false;
        member.child.kill().await
    }

    /// Starts a worker anew in the place of a killed one.
    pub(crate) fn replace(&mut self, number: usize) -> io::Result<()> {
        self.members[number] = self.spawn(number, self.members[number].life)?;
        Ok(())
    }

    /// Freezes a worker (SIGSTOP), as a long garbage collection or a suspended machine would.
    pub(crate) fn stop(&self, number: usize) -> io::Result<()> {
        Ok(kill_process(self.members[number].pid, Signal::STOP)?)
    }

    /// Lets a frozen worker run on, and tells it to go on with its work.
    pub(crate) async fn wake(&mut self, number: usize) -> io::Result<()> {
        kill_process(self.members[number].pid, Signal::CONT)?;
        self.order(number, "go on\n").await
    }

    pub(crate) fn size(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn pid(&self, number: usize) -> i32 {
        self.members[number].pid.as_raw_nonzero().get()
    }

    async fn order(&mut self, number: usize, line: &str) -> io::Result<()> {
        match &mut self.members[number].orders {
            Some(orders) => orders.write_all(line.as_bytes()).await,
            None => Ok(()),
        }
    }

    /// Ends all workers in good order and returns what they still had to say.
    pub(crate) async fn end(&mut self) -> io::Result<Vec<(usize, Event)>> {
        let mut last_words = Vec::new();
        for member in &mut self.members {
            member.orders = None; // the end of their input is the order to end
            // one may be frozen still; for the others this means nothing
            let _ = kill_process(member.pid, Signal::CONT);
        }
        for (number, member) in self.members.iter_mut().enumerate() {
            match tokio::time::timeout(END_LIMIT, member.child.wait()).await {
                Ok(status) if ended_well(status.as_ref()) => {}
                Ok(status) => last_words.push((number, Event::Failed(format!("it ended badly: {status:?}")))),
                Err(_) => {
                    member.child.kill().await?;
                    last_words.push((number, Event::Failed(format!("it did not end within {END_LIMIT:?}"))));
                }
            }
        }
        while self.members.iter().any(|member| member.talks) {
            match self.events.recv().await {
                Some((number, life, Event::Gone)) => {
                    let member = &mut self.members[number];
                    member.talks &= member.life != life;
                }
                Some((number, _, event)) => last_words.push((number, event)),
                None => break,
            }
        }
        Ok(last_words)
    }
}

/// Ctrl-C in the moment of a worker's start reaches the worker too.
fn ended_well(status: Result<&ExitStatus, &io::Error>) -> bool {
    status.is_ok_and(|status| status.success() || status.signal() == Some(Signal::INT.as_raw()))
}

async fn pass_on(
    mut lines: Lines<BufReader<ChildStdout>>,
    number: usize,
    life: u64,
    sender: UnboundedSender<(usize, u64, Event)>,
) {
    // a line that cannot be read ends the conversation as much as the end does
    while let Ok(Some(line)) = lines.next_line().await {
        let _ = sender.send((number, life, line.parse().unwrap_or_else(Event::Failed)));
    }
    let _ = sender.send((number, life, Event::Gone));
}
