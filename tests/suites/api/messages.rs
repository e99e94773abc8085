//! Errors, debug forms and log lines: what they name, and what they never show.

use std::fmt::Write as _;
use std::sync::{Mutex, Once};

use onelock::{Error, ErrorKind, Owner};
use onelock_tests::face::{Client, Face, on_both};
use onelock_tests::proxy::Match;
use onelock_tests::servers::{Flavor, Port, Server};
use onelock_tests::stage::{SOON, Stage, fails, ms, quick};
use onelock_tests::wait::wait_until;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Everything that the library has logged in this process, of every level.
static LOGGED: Mutex<String> = Mutex::new(String::new());

struct Recorder;

struct Writer<'a>(&'a mut String);

impl Visit for Writer<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut logged = LOGGED.lock().unwrap();
        let _ = write!(logged, "\nspan {}", span.metadata().name());
        span.record(&mut Writer(&mut logged));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut Writer(&mut LOGGED.lock().unwrap()));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut logged = LOGGED.lock().unwrap();
        let _ = write!(logged, "\n{} {}", event.metadata().level(), event.metadata().target());
        event.record(&mut Writer(&mut logged));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Records from now on. What was logged so far and later is in [`logged`].
pub(crate) fn record() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Recorder).unwrap());
}

/// Everything logged so far.
pub(crate) fn logged() -> String {
    LOGGED.lock().unwrap().clone()
}

const SECRET: &str = "hunter2-swordfish";

fn all_forms(error: &Error) -> String {
    format!("{error} {error:?} {error:#?} {} {} {:?}", error.tried(), error.detail(), error.causes())
}

#[test]
fn a_password_is_shown_nowhere() {
    record();
    on_both(|face| {
        let stage = Stage::with(Server::builder(Flavor::Valkey91).password("another").start());
        let nowhere = Port::reserve();
        let urls = [
            stage.proxy.url_with(&format!(":{SECRET}"), "/"),
            stage.proxy.url_with(&format!("user:{SECRET}"), "/?protocol=resp2"),
            stage.proxy.url_with("", &format!("/?password={SECRET}")),
            format!("redis://:{SECRET}@127.0.0.1:{}/", nowhere.number()),
            format!("rediss://:{SECRET}@127.0.0.1:{}/", stage.proxy.port()),
            format!("redis://:{SECRET}@no-such-host.invalid:1/"),
            format!("unix://:{SECRET}@/no/such/socket"),
        ];
        for url in &urls {
            let builder = quick().label("a label");
            let mut shown = format!("{builder:?}");
            let client = Client::build(face, builder, url).unwrap();
            match &client {
                Client::Async(client) => write!(shown, "{client:?} {:?}", client.lock("a")).unwrap(),
                Client::Blocking(client) => write!(shown, "{client:?} {:?}", client.lock("a")).unwrap(),
            }
            let errors = [
                client.check().map(drop).unwrap_err(),
                client.lock("a").acquire_within(ms(60)).map(drop).unwrap_err(),
                client.inspect("a").map(drop).unwrap_err(),
                client.force_release("a").map(drop).unwrap_err(),
                client.lock("a").attach(&format!("onelock1:{:032x}", 1)).map(drop).unwrap_err(),
            ];
            for error in &errors {
                shown += &all_forms(error);
            }
            assert!(!shown.contains("hunter2") && !shown.contains("swordfish"), "{url}: {shown}");
        }
        // bad addresses with a password in them
        for url in [
            format!("redis://:{SECRET}@host:port/"),
            format!("redis//:{SECRET}@host"),
            format!("nosuch://:{SECRET}@host/"),
            format!("redis://:{SECRET}@host/x"),
            format!("redis://:{SECRET}@host/0?nosuch={SECRET}"),
            format!("redis://:{SECRET}@a nosuch://:{SECRET}@b"),
        ] {
            let error = Client::build(face, quick(), &url).map(drop).unwrap_err();
            assert!(!all_forms(&error).contains("hunter2"), "{error}");
        }
    });
    // and when it works, with a lease
    let server = Server::builder(Flavor::Valkey91).password(SECRET).start();
    on_both(|face| {
        let client = Client::connect(face, quick(), &server.url()).unwrap();
        let lease = client.lock(format!("{face:?}")).acquire().unwrap();
        assert!(!format!("{lease:?}").contains("hunter2"));
        let error = client.lock(format!("{face:?}")).acquire_within(ms(0)).map(drop).unwrap_err();
        assert!(!all_forms(&error).contains("hunter2"));
        client.close();
    });
    let logged = logged();
    assert!(logged.contains("lock acquired"), "the recorder records");
    assert!(!logged.contains("hunter2") && !logged.contains("swordfish"), "in the log");
}

#[test]
fn a_token_is_shown_nowhere() {
    record();
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        let lease = client.lock("secret token").acquire().unwrap();
        let token = stage.server.text(&["GET", "secret token"]);
        let error = client.lock("secret token").acquire_within(ms(0)).map(drop).unwrap_err();
        stage.server.cmd(&["DEL", "secret token"]);
        let lost = lease.extend(ms(1000)).unwrap_err();
        let shown = format!("{lease:?} {} {}", all_forms(&error), all_forms(&lost));
        let digits = token.strip_prefix("onelock1:").unwrap();
        assert_eq!(digits.len(), 32);
        assert!(!shown.contains(digits) && !logged().contains(digits));
    });
}

#[test]
fn messages_name_the_lock_what_was_tried_and_what_to_do() {
    on_both(|face| {
        let stage = Stage::valkey();
        let client = stage.client(face);
        stage.server.cmd(&["RPUSH", "a list", "x"]);
        let held = client.lock("held").acquire().unwrap();
        let released = client.lock("released").acquire().unwrap();
        released.released();
        let lost = client.reentrant_lock("lost").owner(&Owner::named("me")).acquire().unwrap();
        stage.server.cmd(&["DEL", "lost"]);
        let away = Client::build(face, quick(), "redis://127.0.0.1:1/").unwrap();
        let cases = [
            (client.lock("held").acquire_within(ms(0)).map(drop), ErrorKind::Busy, "held", "try_acquire"),
            (client.lock("held").acquire_within(ms(20)).map(drop), ErrorKind::Timeout, "held", "acquire"),
            (released.extend(ms(1000)), ErrorKind::NotHeld, "released", "use the lease"),
            (lost.extend(ms(1000)), ErrorKind::Lost, "lost", "use the lease"),
            (client.lock("a list").acquire().map(drop), ErrorKind::WrongKind, "a list", "acquire"),
            (client.force_release("a list").map(drop), ErrorKind::WrongKind, "a list", "force_release"),
            (client.inspect("a list").map(drop), ErrorKind::WrongKind, "a list", "inspect"),
            (client.lock("a list").is_locked().map(drop), ErrorKind::WrongKind, "a list", "i"),
            (away.lock("away").try_acquire().map(drop), ErrorKind::Unavailable, "away", "try_acquire"),
            (away.inspect("away").map(drop), ErrorKind::Unavailable, "away", "inspect"),
            (away.force_release("away").map(drop), ErrorKind::Unavailable, "away", "force_release"),
            (client.lock("short").ttl(ms(1)).acquire().map(drop), ErrorKind::InvalidArgument, "short", "acquire"),
        ];
        for (result, kind, name, tried) in cases {
            let error = fails(result, kind);
            let text = error.to_string();
            assert_eq!(error.lock_name(), Some(name), "{text}");
            assert!(text.contains(&format!("\"{name}\"")), "{text}");
            assert!(text.starts_with(tried) && error.tried().starts_with(tried), "{tried}: {text}");
            assert!(text.contains(kind.name()) && text.contains(kind.todo()), "{text}");
            assert!(text.len() < 600, "{text}");
        }
        drop(held);
    });
}

#[test]
fn warnings_say_what_went_wrong_and_with_which_lock() {
    record();
    let stage = Stage::valkey();
    let client = stage.client(Face::Blocking);
    let lease = client.lock("warn:lost").ttl(ms(5000)).renew_every(ms(20)).acquire().unwrap();
    let silent = stage.proxy.on(Match::any().with_arg("warn:lost")).once().cut_before(onelock_tests::proxy::Cut::Reset);
    silent.wait_hits(1);
    wait_until(SOON, "a word about the missed renewal", || {
        logged().lines().any(|line| line.contains("warn:lost") && line.contains("a renewal was missed"))
    });
    stage.server.cmd(&["DEL", "warn:lost"]);
    assert!(lease.wait_lost(SOON).is_some());
    wait_until(SOON, "a word about the loss", || {
        logged().lines().any(|line| line.contains("warn:lost") && line.contains("lock lost"))
    });
    client.force_release("warn:force").unwrap();
    let policy = Server::builder(Flavor::Redis62).config("maxmemory-policy", "allkeys-lru").start();
    Client::connect(Face::Blocking, quick(), &policy.url()).unwrap();
    let told = |level: &str, words: &[&str]| {
        let line = logged().lines().find(|line| words.iter().all(|word| line.contains(word))).map(str::to_owned);
        assert!(line.as_ref().is_some_and(|line| line.contains(level)), "{level} {words:?}: {line:?}");
    };
    // one line that says whose it is; what endangers nobody while the server runs is no warning
    told("WARN", &["onelock: redis 6.2", "maxmemory-policy is allkeys-lru", "(eviction)"]);
    told("INFO", &["onelock: redis 6.2", "appendonly is off", "(persistence)"]);
    told("INFO", &["onelock: connected to redis 6.2", &policy.port().to_string()]);
}

#[test]
fn accepted_warnings_are_not_logged_and_told_all_the_same() {
    record();
    let fragile = Server::builder(Flavor::Redis62).config("maxmemory-policy", "volatile-random").start();
    for face in Face::ALL {
        let client = Client::connect(face, quick().accepted_warnings("eviction, persistence"), &fragile.url()).unwrap();
        let facts = client.check().unwrap();
        assert!(facts.dangers.is_empty(), "{:?}", facts.dangers);
        assert!(facts.warnings.iter().any(|warning| warning.ends_with("(eviction)")), "{:?}", facts.warnings);
        assert!(!logged().contains("volatile-random"));
        let error =
            fails(Client::build(face, quick().accepted_warnings("evictions"), "memory://"), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("evictions"), "{error}");
    }
    let client = Client::connect(Face::Blocking, quick().accepted_warnings("persistence"), &fragile.url()).unwrap();
    assert_eq!(client.check().unwrap().dangers.len(), 1);
    assert!(logged().contains("volatile-random"));
}

#[test]
fn a_new_connection_and_a_long_wait_are_worth_a_line() {
    record();
    on_both(|face| {
        let stage = Stage::valkey();
        let (holder, client) = (stage.client(face), stage.client(face));
        let name = format!("long wait {face:?}");
        let held = holder.lock(&name).acquire().unwrap();
        stage.proxy.cut_all();
        let about = |words: &str, what: &str| {
            logged().lines().any(|line| line.contains("INFO") && line.contains(words) && line.contains(what))
        };
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| client.lock(&name).acquire().unwrap());
            wait_until(4 * SOON, "a word about the wait", || about("onelock: still waiting for a lock", &name));
            held.released();
            drop(waiter.join().unwrap());
        });
        assert!(about("onelock: lock acquired after a long wait", &name));
        let port = stage.proxy.url().rsplit(':').next().unwrap().trim_end_matches('/').to_owned();
        wait_until(SOON, "a word about the new connection", || about("onelock: connected again", &port));
    });
}
