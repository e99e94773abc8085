//! What happened in one schedule, as data: for whoever draws it. All times are true ones, in nanoseconds since the schedule
//! began.

/// Where something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// A client process.
    Client(usize),
    /// A server.
    Server(usize),
    /// What the lock protects.
    Resource,
    /// Between them, or everywhere.
    Network,
}

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// A request of a client.
    Request,
    /// A second one of the same request, made by something on the way.
    Copy,
    /// The answer to a request.
    Reply,
    /// A message to whoever waits: the lock is free, or granted.
    Notice,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It had not arrived when the schedule ended.
    UnderWay,
    /// It came to its end.
    Arrived,
    /// It never arrived, or nobody was there any more.
    Lost,
}

/// One message between a client and a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// What it is.
    pub way: Way,
    /// The client that sends it or gets it.
    pub client: usize,
    /// The server at its other end.
    pub server: usize,
    /// What it says, in a few words.
    pub text: String,
    /// When it left.
    pub sent: u64,
    /// When it arrived or was lost; `None` while it is under way.
    pub end: Option<u64>,
    /// What became of it.
    pub fate: Fate,
    /// It took much longer than messages usually do.
    pub late: bool,
}

/// One lease, as its client believes in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Whose it is.
    pub client: usize,
    /// The lock.
    pub lock: usize,
    /// The claim that was granted.
    pub claim: usize,
    /// Its fencing token.
    pub token: Option<u64>,
    /// When it was handed out.
    pub from: u64,
    /// Its deadlines: when each was set, and what it is.
    pub deadlines: Vec<(u64, u64)>,
    /// When it ended, and how.
    pub end: Option<(u64, String)>,
}

/// A hold as it stands on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The server.
    pub server: usize,
    /// The lock.
    pub lock: usize,
    /// Whose claim; `None` for something of another program.
    pub claim: Option<usize>,
    /// When it came to stand there.
    pub from: u64,
    /// When it was gone.
    pub until: Option<u64>,
    /// When it ends by itself, as far as known.
    pub expires: Option<u64>,
}

/// A time in which something does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// Who.
    pub lane: Lane,
    /// `frozen`, and it goes on; or `down`, and it starts anew.
    pub what: &'static str,
    /// From when.
    pub from: u64,
    /// To when.
    pub until: Option<u64>,
}

/// A write of a holder to the protected resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// When.
    pub at: u64,
    /// Who.
    pub client: usize,
    /// Under which lock.
    pub lock: usize,
    /// With which claim.
    pub claim: usize,
    /// With which fencing token.
    pub token: u64,
    /// Whether the gate let it pass: no higher token had been seen.
    pub admitted: bool,
    /// The writer had been stopped meanwhile, and did not look whether it holds the lock still.
    pub late: bool,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// When.
    pub at: u64,
    /// Where.
    pub lane: Lane,
    /// What kind of thing it is.
    pub what: &'static str,
    /// One sentence.
    pub text: String,
    /// The message that it is about.
    pub message: Option<usize>,
    /// The lease that it is about.
    pub lease: Option<usize>,
}

/// A property that was violated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// When.
    pub at: u64,
    /// The property.
    pub property: &'static str,
    /// What was seen.
    pub detail: String,
}

/// One schedule from its beginning to the end, or to the first violation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// How much faster each client's clock runs, in millionths.
    pub clients: Vec<i64>,
    /// The same of the servers.
    pub servers: Vec<i64>,
    /// The kind of each lock.
    pub locks: Vec<&'static str>,
    /// The time to live of the leases.
    pub ttl: u64,
    /// When faults stop.
    pub calm: u64,
    /// All messages, in the order in which they left.
    pub messages: Vec<Message>,
    /// All leases, in the order in which they were handed out.
    pub leases: Vec<Lease>,
    /// What stood on the servers.
    pub keys: Vec<Key>,
    /// Who did not run, and when.
    pub stops: Vec<Stop>,
    /// What the protected resource saw.
    pub writes: Vec<Write>,
    /// Everything in its order.
    pub steps: Vec<Step>,
    /// What was violated.
    pub broken: Option<Broken>,
    /// When it ended.
    pub end: u64,
    /// It was too long: what came after the last step is left out.
    pub cut: bool,
}
