//! Finds the present master of a group by asking its Sentinels, and hears of its replacement.
//!
//! A Sentinel's word is where to look, not proof: whether a master answers there is seen when it is spoken to.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::Value;
use tokio::time::{sleep, timeout};

use super::RedisOptions;
use super::dial::open;
use super::endpoint::Endpoint;
use super::hosts::{Sentinels, listed};
use super::inquiry::{Talk, ask, ask_blocking, refused};
use super::line::Patience;
use super::link::Link;
use super::shared::Common;
use super::value::text;
use crate::driver::clock;
use crate::error::ErrorKind;
use crate::machine::{Failure, Time};

/// The channel on which a Sentinel announces a new master.
const SWITCH: &str = "+switch-master";
/// How long the watch pauses after a Sentinel was lost.
const PAUSE: Duration = Duration::from_secs(1);
/// Over a quiet watch, the Sentinel is changed for another after this long, in case it has lost touch with the others.
const QUIET: Duration = Duration::from_secs(60);

/// The Sentinels of one group, and what they said last.
pub(crate) struct Scout {
    service: String,
    template: Endpoint,
    options: RedisOptions,
    pub(crate) common: Arc<Common>,
    name: String,
    known: Mutex<Known>,
    epoch: AtomicU64,
}

struct Known {
    /// Whoever answered last stands in front, whoever failed or misled goes to the back.
    sentinels: Vec<Arc<Endpoint>>,
    master: Option<Arc<Endpoint>>,
}

impl fmt::Display for Scout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Scout {
    pub(crate) fn new(group: Sentinels, options: RedisOptions) -> Scout {
        let Sentinels { service, watchers, master } = group;
        let scheme = if master.tls.is_some() { "rediss" } else { "redis" };
        let name = format!("{scheme}+sentinel://{}/{service}/{}", listed(watchers.iter()), master.db);
        let known = Known { sentinels: watchers.into_iter().map(Arc::new).collect(), master: None };
        let (common, epoch) = (Arc::new(Common::default()), AtomicU64::new(0));
        Scout { service, template: master, options, common, name, known: Mutex::new(known), epoch }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Grows whenever connections made before are not to be used again.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The present master, by the first Sentinel that knows it.
    pub(crate) async fn locate(&self) -> Result<Arc<Endpoint>, Failure> {
        let mut search = Search::new(self);
        while let Some((sentinel, share)) = search.next() {
            let question: &[&[&str]] = &[&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &self.service]];
            let answer = ask(&self.common, &self.options, &sentinel, question, share).await;
            if let Some(master) = search.answered(&sentinel, answer) {
                return Ok(master);
            }
        }
        Err(search.give_up())
    }

    /// The same from a thread.
    pub(crate) fn locate_blocking(&self, patience: Patience<'_>) -> Result<Arc<Endpoint>, Failure> {
        let mut search = Search::new(self);
        search.until = search.until.min(patience.until);
        while let Some((sentinel, share)) = search.next() {
            let question: &[&[&str]] = &[&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &self.service]];
            let answer = ask_blocking(&self.common, &self.options, &sentinel, question, share, patience);
            if let Some(master) = search.answered(&sentinel, answer) {
                return Ok(master);
            }
        }
        Err(search.give_up())
    }

    /// Where the master was said to be in this epoch, none answered: whoever said so is asked last next time, and what was
    /// connected before is not used again. Told once, however many found out.
    pub(crate) fn missed(&self, epoch: u64) {
        let mut known = self.known();
        if self.epoch() == epoch {
            known.sentinels.rotate_left(1);
            self.epoch.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn trust(&self, sentinel: &Arc<Endpoint>, master: Endpoint) -> Arc<Endpoint> {
        let mut known = self.known();
        if let Some(at) = known.sentinels.iter().position(|it| Arc::ptr_eq(it, sentinel)) {
            known.sentinels[..=at].rotate_right(1);
        }
        self.set_master(&mut known, master).0
    }

    /// The master, and whether it is another one than before.
    fn set_master(&self, known: &mut Known, master: Endpoint) -> (Arc<Endpoint>, bool) {
        if let Some(before) = known.master.as_ref().filter(|before| ***before == master) {
            return (before.clone(), false);
        }
        let (master, moved) = (Arc::new(master), known.master.is_some());
        known.master = Some(master.clone());
        if moved {
            self.epoch.fetch_add(1, Ordering::AcqRel);
        }
        (master, moved)
    }

    /// What an answer says: the master, or why there is none.
    fn read(&self, sentinel: &Endpoint, answer: &Value) -> Result<Endpoint, Failure> {
        if let Some(failure) = refused(sentinel, answer) {
            return Err(failure);
        }
        let place = match answer {
            Value::Array(words) => words.first().and_then(text).zip(words.get(1).and_then(text)),
            _ => None,
        };
        place.and_then(|(host, port)| self.master_at(host, port)).ok_or_else(|| {
            let detail = format!("{sentinel}: this Sentinel knows no master named \"{}\"", self.service);
            Failure::transient(ErrorKind::Unavailable, detail)
        })
    }

    fn master_at(&self, host: &[u8], port: &[u8]) -> Option<Endpoint> {
        let host = str::from_utf8(host).ok().filter(|host| !host.is_empty())?;
        let port = str::from_utf8(port).ok()?.parse().ok().filter(|port| *port != 0)?;
        Some(self.template.moved_to(host, port))
    }

    /// Listens to one Sentinel after the other for a new master, until the link is gone.
    pub(crate) async fn watch(self: Arc<Self>, link: Weak<Link>) {
        while self.common.check_open().is_ok() && link.strong_count() > 0 {
            let sentinel = self.known().sentinels.first().cloned();
            let Some(sentinel) = sentinel else { return };
            if let Err(failure) = self.listen(&sentinel, &link).await {
                tracing::debug!(cause = failure.detail, "a Sentinel is not listened to");
                sleep(PAUSE).await;
            }
            let mut known = self.known();
            if known.sentinels.first().is_some_and(|first| Arc::ptr_eq(first, &sentinel)) {
                known.sentinels.rotate_left(1);
            }
        }
    }

    /// Ends without an error when the Sentinel has had nothing to say for a while.
    async fn listen(&self, sentinel: &Arc<Endpoint>, link: &Weak<Link>) -> Result<(), Failure> {
        let limit = self.options.connect_timeout;
        let mut talk = Talk::new(
            timeout(limit, open(&self.common, &self.options, sentinel.clone(), limit))
                .await
                .unwrap_or_else(|_| Err(super::socket::no_connection_in_time(&**sentinel)))?,
        );
        // asked on the same connection first: a change before the subscription is seen, one after it is heard
        talk.say(&[&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &self.service][..], &["SUBSCRIBE", SWITCH]]).await?;
        let master = self.read(sentinel, &talk.hear().await?)?;
        self.heard(link, master);
        loop {
            let Ok(heard) = timeout(QUIET, talk.hear()).await else { return Ok(()) };
            let heard = heard?;
            if let Some(failure) = refused(sentinel, &heard) {
                return Err(failure);
            }
            if let Some(master) = self.announced(&heard) {
                self.heard(link, master);
            }
        }
    }

    /// The new master, if a message tells of one of this group: `GROUP OLD-HOST OLD-PORT NEW-HOST NEW-PORT`.
    fn announced(&self, message: &Value) -> Option<Endpoint> {
        let Value::Array(words) = message else { return None };
        if words.first().and_then(text) != Some(b"message") {
            return None;
        }
        let mut words = words.get(2).and_then(text)?.rsplitn(5, |byte| *byte == b' ');
        let (port, host) = (words.next()?, words.next()?);
        let service = words.nth(2)?;
        (service == self.service.as_bytes()).then(|| self.master_at(host, port)).flatten()
    }

    fn heard(&self, link: &Weak<Link>, master: Endpoint) {
        let (master, moved) = {
            let mut known = self.known();
            self.set_master(&mut known, master)
        };
        if moved {
            tracing::info!(%master, "Sentinel: the master has moved");
            if let Some(link) = link.upgrade() {
                link.moved();
            }
        }
    }
}

/// One round of questions. Each Sentinel gets its share of the time, so that a silent one leaves some to the next, and
/// something is left for the master.
struct Search<'a> {
    scout: &'a Scout,
    left: std::vec::IntoIter<Arc<Endpoint>>,
    until: Time,
    failure: Option<Failure>,
}

impl<'a> Search<'a> {
    fn new(scout: &'a Scout) -> Search<'a> {
        let sentinels = scout.known().sentinels.clone();
        let until = clock::now() + scout.options.connect_timeout;
        Search { scout, left: sentinels.into_iter(), until, failure: None }
    }

    fn next(&mut self) -> Option<(Arc<Endpoint>, Duration)> {
        let parts = u32::try_from(self.left.len()).unwrap_or(u32::MAX).saturating_add(1);
        let share = self.until.since(clock::now()) / parts;
        Some((self.left.next()?, share.max(Duration::from_millis(1))))
    }

    fn answered(&mut self, sentinel: &Arc<Endpoint>, answer: Result<Vec<Value>, Failure>) -> Option<Arc<Endpoint>> {
        let read = answer.and_then(|answers| self.scout.read(sentinel, answers.first().unwrap_or(&Value::Nil)));
        match read {
            Ok(master) => Some(self.scout.trust(sentinel, master)),
            Err(failure) => {
                tracing::debug!(cause = failure.detail, "a Sentinel did not name the master");
                // what somebody has to do something about is told before what may pass
                if self.failure.as_ref().is_none_or(|known| known.transient) {
                    self.failure = Some(failure);
                }
                None
            }
        }
    }

    fn give_up(self) -> Failure {
        let failure = self.failure.unwrap_or_else(|| Failure::transient(ErrorKind::Unavailable, "no Sentinel"));
        let detail = format!("no Sentinel named the master of \"{}\"; {}", self.scout.service, failure.detail);
        Failure { detail, ..failure }
    }
}
