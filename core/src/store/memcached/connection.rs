//! One connection that many callers share: a task writes their requests in the order in which they were handed over and
//! gives each its replies.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::protocol::{self, CacheReply, Command, Input};
use crate::error::ErrorKind;
use crate::machine::Failure;
use crate::store::net::Stream;
use crate::sys::fork::{LeakAfterFork, ProcessStamp};
use crate::sys::{clock, lock};

/// How much is read at a time.
const READ: usize = 4096;

/// What the server said of itself when the connection was made.
#[derive(Clone, Debug, Default)]
pub(super) struct Greeting {
    pub(super) version: String,
    /// Whether it makes room by removing items; `None` where it does not say.
    pub(super) evicts: Option<bool>,
    /// It asked for a user.
    pub(super) logged_in: bool,
}

/// A connection in use.
pub(super) struct CacheConnection {
    /// Never used twice in one client.
    pub(super) number: u64,
    pub(super) greeting: Greeting,
    /// The numbers of items by the tokens in them, as this connection was told them. Those of a server that was restarted
    /// begin anew, and so does the connection.
    item_numbers: Mutex<HashMap<Arc<str>, u64>>,
    /// Ends the task, when dropped, as soon as outstanding replies have come.
    requests: LeakAfterFork<mpsc::UnboundedSender<CacheRequest>>,
}

/// Commands that go out together.
struct CacheRequest {
    bytes: Vec<u8>,
    /// How many replies there will be.
    replies: usize,
    answer: oneshot::Sender<Result<Vec<CacheReply>, NoReply>>,
}

/// Why there are no replies.
#[derive(Clone, Debug)]
pub(super) struct NoReply {
    /// Whether bytes may have left.
    pub(super) sent: bool,
    pub(super) why: String,
}

impl CacheConnection {
    /// Lives on the runtime of the caller. A server that sends nothing for `limit` while a reply is due ends it.
    pub(super) fn start(
        stream: Box<dyn Stream>,
        (number, greeting): (u64, Greeting),
        limit: Duration,
        stamp: ProcessStamp,
    ) -> CacheConnection {
        let (requests, received) = mpsc::unbounded_channel();
        tokio::spawn(serve(stream, received, limit));
        let requests = LeakAfterFork::new(requests, stamp);
        CacheConnection { number, greeting, item_numbers: Mutex::default(), requests }
    }

    pub(super) fn is_usable(&self) -> bool {
        !self.requests.is_closed()
    }

    /// Whether it is known to remove items to make room. Where it does not, a write may cost the item that is there.
    pub(super) fn makes_room(&self) -> bool {
        self.greeting.evicts == Some(true)
    }

    /// Sends commands, each of which has one reply. Whoever stops waiting loses the replies, and disturbs nobody.
    pub(super) async fn exchange(&self, commands: &[Command<'_>]) -> Result<Vec<CacheReply>, NoReply> {
        let mut bytes = Vec::new();
        for command in commands {
            command.write(&mut bytes);
        }
        self.send(bytes, commands.len()).await
    }

    /// The same with text. Settings are no replies of their own.
    pub(super) async fn send(&self, bytes: Vec<u8>, replies: usize) -> Result<Vec<CacheReply>, NoReply> {
        let ended = |sent| NoReply { sent, why: "the connection has ended".to_owned() };
        let (answer, answered) = oneshot::channel();
        self.requests.send(CacheRequest { bytes, replies, answer }).map_err(|_| ended(false))?;
        answered.await.unwrap_or_else(|_| Err(ended(true)))
    }

    pub(super) fn remember(&self, token: &Arc<str>, number: u64) {
        lock(&self.item_numbers).insert(token.clone(), number);
    }

    /// The number of the item with this token, if it is known. It is good once.
    pub(super) fn take_number(&self, token: &str) -> Option<u64> {
        lock(&self.item_numbers).remove(token)
    }
}

/// Sends commands and gives each request its replies until the connection ends, or nobody has it any more.
async fn serve(mut stream: Box<dyn Stream>, mut requests: mpsc::UnboundedReceiver<CacheRequest>, limit: Duration) {
    let (mut due, mut input, mut is_left, mut heard_at) =
        (VecDeque::<(CacheRequest, Vec<CacheReply>)>::new(), Input::default(), false, clock::now());
    let why = loop {
        if is_left && due.is_empty() {
            return;
        }
        input.bytes.reserve(READ);
        let silence = limit.saturating_sub(clock::now().since(heard_at));
        tokio::select! {
            request = requests.recv(), if !is_left => {
                let Some(request) = request else {
                    is_left = true;
                    continue;
                };
                if due.is_empty() {
                    heard_at = clock::now();
                }
                let mut output = Vec::new();
                let mut next = Some(request);
                while let Some(request) = next {
                    output.extend_from_slice(&request.bytes);
                    due.push_back((request, Vec::new()));
                    next = requests.try_recv().ok();
                }
                let written = async {
                    stream.write_all(&output).await?;
                    stream.flush().await
                };
                match timeout(limit, written).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => break error.to_string(),
                    Err(_) => break "the server takes no more requests".to_owned(),
                }
            }
            read = stream.read_buf(&mut input.bytes) => match read {
                Ok(0) => break "the server closed the connection".to_owned(),
                Ok(_) => {
                    heard_at = clock::now();
                    if let Err(why) = hand_out(&mut input, &mut due) {
                        break why;
                    }
                }
                Err(error) => break error.to_string(),
            },
            () = sleep(silence), if !due.is_empty() => break "no reply in time".to_owned(),
        }
    };
    requests.close();
    for (request, _) in due {
        let _ = request.answer.send(Err(NoReply { sent: true, why: why.clone() }));
    }
    while let Ok(request) = requests.try_recv() {
        let _ = request.answer.send(Err(NoReply { sent: false, why: why.clone() }));
    }
}

/// Gives the replies that have arrived to whom they belong, in order.
fn hand_out(input: &mut Input, due: &mut VecDeque<(CacheRequest, Vec<CacheReply>)>) -> Result<(), String> {
    loop {
        let reply = match protocol::read(input) {
            Ok(Some(reply)) => reply,
            Ok(None) => return Ok(()),
            Err(garbled) => return Err(format!("it is no memcached, or a broken one: it sent {}", garbled.0)),
        };
        let Some((request, replies)) = due.front_mut() else {
            return Err(format!("it sent what nobody asked for: {reply:?}"));
        };
        // behind an error in the form of a command the server may take its data for commands
        let is_lost = matches!(&reply, CacheReply::Refused(words) if !words.starts_with("SERVER_ERROR"));
        let is_counted = !matches!(reply, CacheReply::Setting(..));
        replies.push(reply);
        if is_counted {
            request.replies -= 1;
        }
        if request.replies > 0 && !is_lost {
            continue;
        }
        if let Some((request, replies)) = due.pop_front() {
            let words = format!("{:?}", replies.last());
            let _ = request.answer.send(Ok(replies));
            if is_lost {
                return Err(words);
            }
        }
    }
}

/// Where items have no numbers each compare says yes: what belongs to the next holder would be deleted.
pub(super) fn numbers_nothing(place: &str) -> Failure {
    let detail = format!("{place}: it gives items no numbers (-C, \"cas_enabled no\"); start it without -C");
    Failure::lasting(ErrorKind::Unsupported, detail)
}

/// One question on a stream that nobody else uses yet.
pub(super) async fn ask(stream: &mut dyn Stream, question: &[u8], replies: usize) -> Result<Vec<CacheReply>, String> {
    let (mut input, mut found, mut left) = (Input::default(), Vec::new(), replies);
    stream.write_all(question).await.map_err(|error| error.to_string())?;
    stream.flush().await.map_err(|error| error.to_string())?;
    while left > 0 {
        input.bytes.reserve(READ);
        match stream.read_buf(&mut input.bytes).await {
            Ok(0) => return Err("the server closed the connection".to_owned()),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
        while let Some(reply) =
            protocol::read(&mut input).map_err(|garbled| format!("it is no memcached: it sent {}", garbled.0))?
        {
            left = left.saturating_sub(usize::from(!matches!(reply, CacheReply::Setting(..))));
            found.push(reply);
        }
    }
    Ok(found)
}
