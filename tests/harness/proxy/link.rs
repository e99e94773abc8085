//! One client's connection through the proxy: four threads, two that read and two that write.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::expect::{Arrived, Expected};
use super::lane::{Next, Parcel, Way};
use super::log::Fate;
use super::rule::{Action, Cut, Data, ReplyAction};
use super::state::State;
use super::{Settings, Shared};
use crate::resp::{frame_length, parse_request};

/// How long a write may block before the writer looks whether it should end.
const LOOK: Duration = Duration::from_millis(50);

pub(super) struct Link {
    pub(super) number: usize,
    state: Mutex<State>,
    changed: Condvar,
    client: Mutex<Option<Arc<TcpStream>>>,
    server: Mutex<Option<Arc<TcpStream>>>,
}

impl Link {
    /// Starts to carry messages between `client` and `server`.
    pub(super) fn start(
        shared: &Arc<Shared>,
        number: usize,
        client: TcpStream,
        server: TcpStream,
    ) -> io::Result<Arc<Self>> {
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
            stream.set_write_timeout(Some(LOOK))?;
            // An accepted socket inherits the limit of the listening one.
            stream.set_read_timeout(None)?;
        }
        let (client, server) = (Arc::new(client), Arc::new(server));
        let link = Arc::new(Self {
            number,
            state: Mutex::new(State { client_threads: 2, ..State::default() }),
            changed: Condvar::new(),
            client: Mutex::new(Some(Arc::clone(&client))),
            server: Mutex::new(Some(Arc::clone(&server))),
        });
        let reader = Arc::clone(&client);
        link.thread(shared, "requests in", move |shared, link| {
            link.read_requests(shared, &reader);
            drop(reader);
            link.client_thread_ended();
        })?;
        link.thread(shared, "replies out", move |shared, link| {
            link.write(shared, Way::ToClient, &client);
            // Whoever cut it has chosen how it ends.
            if !link.lock().dead_or_cut() {
                let _ = client.shutdown(Shutdown::Both);
            }
            link.client.lock().unwrap().take();
            drop(client);
            link.client_thread_ended();
        })?;
        let writer = Arc::clone(&server);
        link.thread(shared, "requests out", move |shared, link| {
            link.write(shared, Way::ToServer, &writer);
            let _ = writer.shutdown(Shutdown::Write);
        })?;
        link.thread(shared, "replies in", move |shared, link| {
            link.read_replies(shared, &server);
            link.server.lock().unwrap().take();
        })?;
        Ok(link)
    }

    fn thread(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        what: &str,
        body: impl FnOnce(&Shared, &Link) + Send + 'static,
    ) -> io::Result<()> {
        let (shared, link) = (Arc::clone(shared), Arc::clone(self));
        let name = format!("{what} {}", self.number);
        std::thread::Builder::new().name(name).spawn(move || body(&shared, &link)).map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Makes the writers look again; settings or gates have changed.
    pub(super) fn wake(&self) {
        let _state = self.lock();
        self.changed.notify_all();
    }

    /// Whether client and server are still connected through it.
    pub(super) fn is_open(&self) -> bool {
        !self.lock().over
    }

    /// Cuts the client off. What it has sent before still goes to the server.
    pub(super) fn cut(&self, how: Cut) {
        let Some(client) = self.client.lock().unwrap().take() else { return };
        let mut state = self.lock();
        state.over = true;
        state.cut = true;
        state.to_client.kill();
        self.changed.notify_all();
        drop(state);
        let _ = match how {
            // The last thread that lets go of the socket closes it, and then this makes the kernel send RST. Ending
            // the reads wakes the thread that reads, and sends nothing.
            Cut::Reset => {
                SockRef::from(&*client).set_linger(Some(Duration::ZERO)).and_then(|()| client.shutdown(Shutdown::Read))
            }
            Cut::Close => client.shutdown(Shutdown::Both),
        };
    }

    /// Waits until the client's socket is closed, after a cut.
    pub(super) fn wait_closed(&self) {
        let limit = Duration::from_secs(5);
        let (_state, result) =
            self.changed.wait_timeout_while(self.lock(), limit, |state| state.client_threads > 0).unwrap();
        assert!(!result.timed_out(), "the threads of connection {} do not end", self.number);
    }

    /// Ends everything at once, also what is held.
    pub(super) fn end(&self) {
        self.cut(Cut::Reset);
        self.lock().to_server.kill();
        if let Some(server) = self.server.lock().unwrap().take() {
            let _ = server.shutdown(Shutdown::Both);
        }
        self.wake();
    }

    fn client_thread_ended(&self) {
        self.lock().client_threads -= 1;
        self.changed.notify_all();
    }

    // ---- requests ----

    fn read_requests(&self, shared: &Shared, mut client: &TcpStream) {
        let (mut chunk, mut received) = ([0; 16 * 1024], Vec::new());
        let mut strange = false;
        while let Ok(count @ 1..) = client.read(&mut chunk) {
            received.extend_from_slice(&chunk[..count]);
            let mut at = 0;
            loop {
                match parse_request(&received[at..]) {
                    Ok(Some(request)) if !strange => {
                        self.request(shared, received[at..at + request.length].to_vec(), &request.args);
                        at += request.length;
                    }
                    Ok(None) if !strange => break,
                    // TLS, or no protocol at all: from here on, bytes are passed on as they are.
                    _ => {
                        strange = true;
                        self.lock().to_server.push(Parcel::new(received.split_off(at), Instant::now(), None));
                        self.changed.notify_all();
                        break;
                    }
                }
            }
            received.drain(..at);
        }
        let mut state = self.lock();
        state.over = true;
        state.to_server.finished = true;
        self.changed.notify_all();
    }

    fn request(&self, shared: &Shared, bytes: Vec<u8>, args: &[Vec<u8>]) {
        let record = shared.record(self.number, args);
        let mut state = self.lock();
        if state.cut || state.requests_lost {
            shared.set_fate(record, Fate::Lost);
            return;
        }
        let mut parcel = Parcel::new(bytes, Instant::now() + shared.settings().latency, Some(record));
        let mut expected = state.awaiting.expectation(args, record);
        if let Some(rule) = shared.rule(false, self.number, args) {
            match rule.action.clone() {
                Action::Swallow => {
                    state.requests_lost = true;
                    shared.set_fate(record, Fate::Lost);
                    return rule.done();
                }
                Action::CutBefore(how) => {
                    drop(state);
                    shared.set_fate(record, Fate::Lost);
                    self.cut(how);
                    return rule.done();
                }
                Action::Answer(bytes) => {
                    parcel.bytes.clear();
                    expected = Expected::ready(bytes, record, rule);
                }
                Action::Reply(action) => {
                    expected.action = action;
                    expected.rule = Some(rule);
                }
                Action::CutAfterForward(how) => parcel.then_cut = Some((how, rule)),
                Action::Duplicate => {
                    parcel.bytes.extend_from_within(..);
                    parcel.expects.push(Expected::surplus());
                    rule.done();
                }
                Action::Delay(by) => {
                    parcel.due += by;
                    rule.done();
                }
                Action::Hold => {
                    rule.done();
                    parcel.gate = Some(rule);
                }
            }
        }
        parcel.expects.insert(0, expected);
        state.to_server.push(parcel);
        self.changed.notify_all();
    }

    // ---- replies ----

    fn read_replies(&self, shared: &Shared, mut server: &TcpStream) {
        let (mut chunk, mut received) = ([0; 16 * 1024], Vec::new());
        let mut strange = false;
        while let Ok(count @ 1..) = server.read(&mut chunk) {
            received.extend_from_slice(&chunk[..count]);
            let mut at = 0;
            loop {
                match frame_length(&received[at..]) {
                    Ok(Some(length)) if !strange => {
                        self.reply(shared, received[at..at + length].to_vec());
                        at += length;
                    }
                    Ok(None) if !strange => break,
                    _ => {
                        strange = true;
                        let latency = shared.settings().latency;
                        let parcel = Parcel::new(received.split_off(at), Instant::now() + latency, None);
                        self.lock().to_client.push(parcel);
                        self.changed.notify_all();
                        break;
                    }
                }
            }
            received.drain(..at);
        }
        let mut state = self.lock();
        state.over = true;
        state.to_client.finished = true;
        let lost = state.to_server.kill();
        self.changed.notify_all();
        drop(state);
        shared.lost(&lost);
    }

    fn reply(&self, shared: &Shared, frame: Vec<u8>) {
        let mut state = self.lock();
        match state.awaiting.arrived(&frame) {
            Arrived::Surplus => {}
            Arrived::Unasked => state.deliver(shared, frame, None, ReplyAction::Deliver, None),
            Arrived::Push(words) => {
                let rule = shared.rule(true, self.number, &words);
                let action = match rule.as_deref() {
                    Some(Data { action: Action::Reply(action), .. }) => action.clone(),
                    _ => ReplyAction::Deliver,
                };
                match (action, rule) {
                    // Only this message is lost: the server might as well never have sent it.
                    (ReplyAction::Drop, Some(rule)) => rule.done(),
                    (action, rule) => state.deliver(shared, frame, None, action, rule),
                }
            }
            Arrived::Answer { record, action, rule } => {
                if let Some(record) = record {
                    shared.set_reply(record, &frame);
                }
                state.deliver(shared, frame, record, action, rule);
            }
        }
        state.answer_in_turn(shared);
        self.changed.notify_all();
    }

    // ---- writers ----

    /// Sends what comes through one lane until it ends.
    fn write(&self, shared: &Shared, way: Way, stream: &TcpStream) {
        loop {
            let mut state = self.lock();
            let parcel = loop {
                match state.lane(way).next(shared.settings().paused(way)) {
                    Next::Send(parcel) => break parcel,
                    Next::End => return,
                    Next::Lost(parcels) => {
                        match way {
                            Way::ToServer => state.requests_lost = true,
                            Way::ToClient => state.replies_lost = true,
                        }
                        if way == Way::ToServer {
                            shared.lost(&parcels);
                        }
                    }
                    Next::Wait(None) => state = self.changed.wait(state).unwrap(),
                    Next::Wait(Some(due)) => {
                        let rest = due.saturating_duration_since(Instant::now());
                        state = self.changed.wait_timeout(state, rest).unwrap().0;
                    }
                }
            };
            let Parcel { bytes, record, expects, then_cut, .. } = parcel;
            if way == Way::ToServer {
                state.awaiting.add(expects);
                // An answer of the proxy's own is written by nobody else when no reply is on its way.
                state.answer_in_turn(shared);
                // The cut comes before the reply, however quick the server is.
                state.replies_lost |= then_cut.is_some();
                self.changed.notify_all();
            }
            drop(state);
            if self.send(&bytes, shared.settings(), way, stream).is_err() {
                shared.lost(&self.lock().lane(way).kill());
                return;
            }
            if let (Some(record), false) = (record, bytes.is_empty()) {
                match way {
                    Way::ToServer => shared.set_fate(record, Fate::Forwarded),
                    Way::ToClient => shared.set_delivered(record),
                }
            } else if let (Some(record), Way::ToServer) = (record, way) {
                shared.set_fate(record, Fate::Answered);
            }
            if let Some((how, rule)) = then_cut {
                self.cut(how);
                rule.done();
            }
        }
    }

    fn send(&self, bytes: &[u8], settings: Settings, way: Way, mut stream: &TcpStream) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.lock().lane(way).dead {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let portion = match (settings.split && way == Way::ToClient, settings.bytes_per_second) {
                (true, _) => 1,
                (false, Some(rate)) => (rate / 50).max(1),
                (false, None) => rest.len(),
            };
            match stream.write(&rest[..portion.min(rest.len())]) {
                Ok(sent) => {
                    rest = &rest[sent..];
                    if let Some(rate) = settings.bytes_per_second {
                        std::thread::sleep(Duration::from_secs_f64(sent as f64 / rate as f64));
                    } else if settings.split {
                        // Long enough for a reader that waits to see this byte alone.
                        std::thread::sleep(Duration::from_micros(20));
                    }
                }
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
