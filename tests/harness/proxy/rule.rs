//! Which messages a fault is for, and what happens to them.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::Shared;
use crate::wait::wait_until;

/// How a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// With RST: the client's next read or write fails with "connection reset".
    Reset,
    /// With FIN: the client reads an orderly end.
    Close,
}

type Test = Arc<dyn Fn(usize, &[Vec<u8>]) -> bool + Send + Sync>;

/// Chooses messages: by command, by script, by argument, by connection or by any test.
#[derive(Clone)]
pub struct Match {
    push: bool,
    tests: Vec<Test>,
    words: Vec<String>,
}

impl Match {
    /// Every request.
    pub fn any() -> Self {
        Self { push: false, tests: Vec::new(), words: vec!["any request".into()] }
    }

    /// Requests of this command, in any case.
    pub fn command(name: &str) -> Self {
        let wanted = name.to_owned();
        Self::any().and(format!("command {name}"), move |_, args| {
            args.first().is_some_and(|word| word.eq_ignore_ascii_case(wanted.as_bytes()))
        })
    }

    /// Calls of this script, by its text (EVAL) or its hash (EVALSHA).
    pub fn script(source: &str) -> Self {
        let (text, hash) = (source.to_owned(), redis::Script::new(source).get_hash().to_owned());
        Self::any().and(format!("script {hash}"), move |_, args| match args {
            [command, script, ..] if command.eq_ignore_ascii_case(b"EVALSHA") => {
                script.eq_ignore_ascii_case(hash.as_bytes())
            }
            [command, script, ..] if command.eq_ignore_ascii_case(b"EVAL") => script == text.as_bytes(),
            _ => false,
        })
    }

    /// Messages that a server sends by itself: `message`, `smessage`, `pmessage` for published ones, `invalidate` ...
    /// Of these, only what comes after the request can be chosen to happen.
    pub fn push(kind: &str) -> Self {
        let wanted = kind.to_owned();
        let mut matching = Self::any().and(format!("push {kind}"), move |_, args| args[0] == wanted.as_bytes());
        matching.push = true;
        matching
    }

    /// Also, one argument must be exactly this.
    pub fn with_arg(self, arg: impl AsRef<[u8]>) -> Self {
        let wanted = arg.as_ref().to_vec();
        let words = format!("an argument {}", wanted.escape_ascii());
        self.and(words, move |_, args| args.iter().skip(1).any(|arg| *arg == wanted))
    }

    /// Also, one argument must contain these bytes (the token inside a longer value, say).
    pub fn containing(self, part: impl AsRef<[u8]>) -> Self {
        let wanted = part.as_ref().to_vec();
        let words = format!("an argument with {} in it", wanted.escape_ascii());
        let holds = move |arg: &Vec<u8>| arg.windows(wanted.len().max(1)).any(|window| window == wanted);
        self.and(words, move |_, args| args.iter().skip(1).any(&holds))
    }

    /// Also, it must come over this connection (they are numbered from 0 as they are accepted).
    pub fn on_connection(self, number: usize) -> Self {
        self.and(format!("connection {number}"), move |connection, _| connection == number)
    }

    /// Also, `test` must say yes to the command and its arguments.
    pub fn when(self, test: impl Fn(&[Vec<u8>]) -> bool + Send + Sync + 'static) -> Self {
        self.and("a test".into(), move |_, args| test(args))
    }

    fn and(mut self, words: String, test: impl Fn(usize, &[Vec<u8>]) -> bool + Send + Sync + 'static) -> Self {
        self.words.push(words);
        self.tests.push(Arc::new(test));
        self
    }

    pub(super) fn hits(&self, push: bool, connection: usize, args: &[Vec<u8>]) -> bool {
        self.push == push && self.tests.iter().all(|test| test(connection, args))
    }
}

impl fmt::Debug for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words.join(", "))
    }
}

/// What happens to a request.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Swallow,
    Hold,
    Delay(Duration),
    Duplicate,
    CutBefore(Cut),
    CutAfterForward(Cut),
    Answer(Vec<u8>),
    /// It is forwarded, and this happens to what comes back.
    Reply(ReplyAction),
}

/// What happens to a reply or a push.
#[derive(Clone, Debug)]
pub(super) enum ReplyAction {
    Deliver,
    Drop,
    Hold,
    Delay(Duration),
    Replace(Vec<u8>),
    CutInstead(Cut),
    CutAfter(Cut),
}

/// Whether held messages may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    Shut,
    Open,
    /// They are lost, and so is what stands behind them.
    Discard,
}

/// One rule as the proxy keeps it.
#[derive(Debug)]
pub(super) struct Data {
    matching: Match,
    pub(super) action: Action,
    progress: Mutex<Progress>,
}

#[derive(Debug)]
struct Progress {
    skip: usize,
    left: usize,
    hits: usize,
    gate: Gate,
}

impl Data {
    /// Whether this message is one for the rule; if so, one use of it is taken.
    pub(super) fn take(&self, push: bool, connection: usize, args: &[Vec<u8>]) -> bool {
        if !self.matching.hits(push, connection, args) {
            return false;
        }
        let mut progress = self.progress.lock().unwrap();
        if progress.left == 0 {
            return false;
        }
        if progress.skip > 0 {
            progress.skip -= 1;
            return false;
        }
        progress.left -= 1;
        true
    }

    pub(super) fn done(&self) {
        self.progress.lock().unwrap().hits += 1;
    }

    /// Takes no further message, and holds nothing any more.
    pub(super) fn end(&self) {
        let mut progress = self.progress.lock().unwrap();
        progress.left = 0;
        progress.gate = Gate::Open;
    }

    pub(super) fn gate(&self) -> Gate {
        self.progress.lock().unwrap().gate
    }
}

/// A fault in the making: how often, then (with the last word) what.
#[must_use = "nothing happens before one of the verbs is called"]
pub struct Plan<'a> {
    shared: &'a Arc<Shared>,
    matching: Match,
    skip: usize,
    times: usize,
}

impl<'a> Plan<'a> {
    pub(super) fn new(shared: &'a Arc<Shared>, matching: Match) -> Self {
        Self { shared, matching, skip: 0, times: usize::MAX }
    }

    /// Only for the next message that matches.
    pub fn once(self) -> Self {
        self.times(1)
    }

    /// Only for the next `count` messages that match.
    pub fn times(mut self, count: usize) -> Self {
        self.times = count;
        self
    }

    /// The first `count` messages that match pass untouched.
    pub fn after(mut self, count: usize) -> Self {
        self.skip = count;
        self
    }

    /// Nothing happens; the rule only counts.
    pub fn watch(self) -> Rule {
        self.reply(ReplyAction::Deliver)
    }

    /// The request is lost, and with it every later request of that connection: a stream loses no message in its midst.
    pub fn swallow(self) -> Rule {
        self.request(Action::Swallow)
    }

    /// The request, and what follows it on its connection, waits until [`Rule::release`]. If the client has closed the
    /// connection by then, the server gets it all the same.
    pub fn hold(self) -> Rule {
        self.request(Action::Hold)
    }

    /// The request, and what follows it on its connection, is forwarded so much later.
    pub fn delay(self, by: Duration) -> Rule {
        self.request(Action::Delay(by))
    }

    /// The server gets the request twice; the client gets the first reply only.
    pub fn duplicate(self) -> Rule {
        self.request(Action::Duplicate)
    }

    /// The request does not reach the server, and the client's connection is cut.
    pub fn cut_before(self, how: Cut) -> Rule {
        self.request(Action::CutBefore(how))
    }

    /// The server gets the request; the client's connection is cut without waiting for the reply.
    pub fn cut_after_forward(self, how: Cut) -> Rule {
        self.request(Action::CutAfterForward(how))
    }

    /// The proxy answers these bytes itself, in turn; the server gets nothing. An error reply, a web page, anything.
    pub fn answer(self, bytes: impl AsRef<[u8]>) -> Rule {
        let bytes = bytes.as_ref().to_vec();
        self.request(Action::Answer(bytes))
    }

    /// The server carries out the request; its reply is lost, and with it everything that would follow on that
    /// connection. Later requests still reach the server. (Of pushes, only the one that matches is lost.)
    pub fn drop_reply(self) -> Rule {
        self.reply(ReplyAction::Drop)
    }

    /// The reply, and what follows it on its connection, waits until [`Rule::release`].
    pub fn hold_reply(self) -> Rule {
        self.reply(ReplyAction::Hold)
    }

    /// The reply, and what follows it on its connection, is delivered so much later.
    pub fn delay_reply(self, by: Duration) -> Rule {
        self.reply(ReplyAction::Delay(by))
    }

    /// The server carries out the request; the client gets these bytes for its reply.
    pub fn replace_reply(self, bytes: impl AsRef<[u8]>) -> Rule {
        let bytes = bytes.as_ref().to_vec();
        self.reply(ReplyAction::Replace(bytes))
    }

    /// The server carries out the request and answers; then the connection is cut, and the reply is lost.
    pub fn cut_instead_of_reply(self, how: Cut) -> Rule {
        self.reply(ReplyAction::CutInstead(how))
    }

    /// The client gets the reply; then the connection is cut.
    pub fn cut_after_reply(self, how: Cut) -> Rule {
        self.reply(ReplyAction::CutAfter(how))
    }

    fn request(self, action: Action) -> Rule {
        assert!(!self.matching.push, "a push answers no request; only its delivery can be changed");
        self.add(action)
    }

    fn reply(self, action: ReplyAction) -> Rule {
        self.add(Action::Reply(action))
    }

    fn add(self, action: Action) -> Rule {
        let progress = Progress { skip: self.skip, left: self.times, hits: 0, gate: Gate::Shut };
        let data = Arc::new(Data { matching: self.matching, action, progress: Mutex::new(progress) });
        self.shared.rules.lock().unwrap().push(Arc::clone(&data));
        Rule { shared: Arc::clone(self.shared), data }
    }
}

/// A fault that was asked for. Dropping the handle changes nothing.
pub struct Rule {
    shared: Arc<Shared>,
    data: Arc<Data>,
}

impl Rule {
    /// How often it has happened: for what is done to replies, counted when the reply came; for the rest, at the request.
    pub fn hits(&self) -> usize {
        self.data.progress.lock().unwrap().hits
    }

    /// Waits until it has happened `count` times.
    ///
    /// # Panics
    /// When that takes longer than 5 s.
    pub fn wait_hits(&self, count: usize) {
        let what = format!("{count} x {:?} at {:?}", self.data.action, self.data.matching);
        wait_until(Duration::from_secs(30), &what, || self.hits() >= count);
    }

    /// Lets what it holds go on its way; from now on, it holds nothing.
    pub fn release(&self) {
        self.open(Gate::Open);
    }

    /// Loses what it holds, and what stands behind it on the same connection.
    pub fn discard(&self) {
        self.open(Gate::Discard);
    }

    /// Ends the rule: it takes no further message. What it holds goes on its way.
    pub fn remove(&self) {
        self.data.end();
        self.shared.wake_all();
    }

    fn open(&self, gate: Gate) {
        self.data.progress.lock().unwrap().gate = gate;
        self.shared.wake_all();
    }
}
