//! The options of a client, their defaults and their limits.
//!
//! | file | is |
//! |---|---|
//! | `credentials` | the credentials provider |
//! | `notify` | how releases are announced in a cluster |
//! | `secret` | a text that is never shown |
//! | `warning` | the names of warnings about a server, by which they are accepted |

pub(crate) mod credentials;
mod notify;
mod secret;
pub(crate) mod warning;

use std::sync::Arc;
use std::time::Duration;

use self::credentials::Provider;
pub use self::notify::Notify;
pub use self::secret::Secret;

use crate::error::{Error, invalid};
use crate::machine::{Grade, Terms, naming, terms};

/// The longest lock name, in bytes.
pub(crate) const NAME_MAX: usize = 512;
/// The longest prefix, in bytes.
pub(crate) const PREFIX_MAX: usize = 512;
/// The longest label, in bytes.
pub(crate) const LABEL_MAX: usize = 128;

/// Everything that can be set on a client. Made by [`Client::builder`](crate::Client::builder).
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) prefix: Vec<u8>,
    /// Shared with every lock that changes nothing of them.
    pub(crate) terms: Arc<Terms>,
    pub(crate) fencing: bool,
    pub(crate) min_fencing_grade: Grade,
    pub(crate) connect_timeout: Duration,
    pub(crate) request_timeout: Duration,
    pub(crate) close_timeout: Duration,
    pub(crate) unreachable_limit: Duration,
    pub(crate) label: Option<String>,
    pub(crate) inspectable: bool,
    pub(crate) accepted_warnings: String,
    pub(crate) tls: TlsOptions,
    pub(crate) notify: Notify,
    pub(crate) min_replicas: u32,
    pub(crate) replica_timeout: Duration,
    pub(crate) credentials: Option<Provider>,
    pub(crate) sentinel: SentinelOptions,
    pub(crate) node_timeout: Duration,
    pub(crate) quarantine: Option<Duration>,
}

/// How to speak to Sentinels.
#[derive(Clone, Debug, Default)]
pub(crate) struct SentinelOptions {
    pub(crate) username: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) tls: bool,
}

/// Certificates for `rediss://`.
#[derive(Clone, Debug, Default)]
pub(crate) struct TlsOptions {
    pub(crate) ca_file: Option<std::path::PathBuf>,
    pub(crate) cert_file: Option<std::path::PathBuf>,
    pub(crate) key_file: Option<std::path::PathBuf>,
    pub(crate) insecure: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            prefix: Vec::new(),
            terms: Arc::default(),
            fencing: true,
            min_fencing_grade: Grade::None,
            connect_timeout: Duration::from_secs(2),
            request_timeout: Duration::from_secs(1),
            close_timeout: Duration::from_secs(1),
            unreachable_limit: Duration::from_secs(30),
            label: None,
            inspectable: false,
            accepted_warnings: String::new(),
            tls: TlsOptions::default(),
            notify: Notify::default(),
            min_replicas: 0,
            replica_timeout: Duration::from_secs(1),
            credentials: None,
            sentinel: SentinelOptions::default(),
            node_timeout: Duration::from_millis(200),
            quarantine: None,
        }
    }
}

impl Options {
    /// Whether the options make sense, before any I/O.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |detail: String| Err(invalid("make a client", detail));
        if self.prefix.len() > PREFIX_MAX {
            return refuse(format!("prefix has {} bytes; it may have {PREFIX_MAX} at most", self.prefix.len()));
        }
        if let Some(label) = &self.label
            && (label.len() > LABEL_MAX || label.chars().any(char::is_control))
        {
            return refuse(format!("label must be at most {LABEL_MAX} bytes without control characters"));
        }
        for (name, span) in [
            ("connect_timeout", self.connect_timeout),
            ("request_timeout", self.request_timeout),
            ("close_timeout", self.close_timeout),
            ("unreachable_limit", self.unreachable_limit),
            ("node_timeout", self.node_timeout),
            ("replica_timeout", self.replica_timeout),
        ] {
            if span < Duration::from_millis(1) || span > terms::SPAN_MAX {
                return refuse(format!("{name} is {span:?}; it must be between 1 ms and one year"));
            }
        }
        if self.quarantine.is_some_and(|quarantine| quarantine > terms::SPAN_MAX) {
            return refuse("quarantine may be one year at most; 0 switches it off".to_owned());
        }
        warning::names(&self.accepted_warnings).map_err(|detail| invalid("make a client", detail))?;
        if !self.fencing && self.min_fencing_grade != Grade::None {
            return refuse("min_fencing_grade asks for fencing tokens, but fencing is off".to_owned());
        }
        self.terms.check().or_else(refuse)
    }
}

/// Whether `name` can be a lock's name; the text says what is wrong.
pub(crate) fn check_name(name: &[u8]) -> Result<(), String> {
    match name.len() {
        0 => Err("the name is empty; a name has 1 to 512 bytes".to_owned()),
        1..=NAME_MAX => check_words(name, "the name"),
        length => Err(format!("the name has {length} bytes; a name has 1 to {NAME_MAX} bytes")),
    }
}

/// Whether a key cannot be taken for another lock's counter or channel.
pub(crate) fn check_words(key: &[u8], what: &str) -> Result<(), String> {
    naming::reserved_word(key).map_or(Ok(()), |word| {
        Err(format!("{what} begins with `{word}:`, under which other locks keep something of theirs; choose another"))
    })
}

/// Whether `wait` is within the limits.
pub(crate) fn check_wait(wait: Option<Duration>) -> Result<(), String> {
    match wait {
        Some(wait) if wait > terms::SPAN_MAX => {
            Err(format!("wait is {wait:?}; it may be one year at most (or use acquire() to wait for ever)"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What holds where an option is not set, as the table writes it; `None` where nothing is set.
    fn default_of(option: &str) -> Option<toml::Value> {
        let Options { terms, tls, sentinel, .. } = Options::default();
        let options = Options::default();
        let ms = |span: Duration| Some(toml::Value::Integer(span.as_millis().try_into().unwrap()));
        let text = |text: &str| (!text.is_empty()).then(|| text.into());
        match option {
            "ttl" => ms(terms.ttl),
            "auto_renew" => Some(terms.auto_renew.into()),
            "min_hold" => ms(terms.min_hold),
            "max_hold" => terms.max_hold.and_then(ms),
            "lock_delay" => ms(terms.lock_delay),
            "min_validity" => ms(terms.min_validity),
            "drift_factor" => Some(terms.drift_factor.into()),
            "fencing" => Some(options.fencing.into()),
            "prefix" => text(std::str::from_utf8(&options.prefix).unwrap()),
            "min_fencing_grade" => text(options.min_fencing_grade.as_str()),
            "label" => options.label.map(Into::into),
            "inspectable" => Some(options.inspectable.into()),
            "accepted_warnings" => text(&options.accepted_warnings),
            "connect_timeout" => ms(options.connect_timeout),
            "request_timeout" => ms(options.request_timeout),
            "close_timeout" => ms(options.close_timeout),
            "unreachable_limit" => ms(options.unreachable_limit),
            "credentials" => options.credentials.map(|_| true.into()),
            "ca_file" => tls.ca_file.map(|_| true.into()),
            "client_certificate" => tls.cert_file.or(tls.key_file).map(|_| true.into()),
            "tls_insecure" => Some(tls.insecure.into()),
            "notify" => text(options.notify.as_str()),
            "min_replicas" => Some(i64::from(options.min_replicas).into()),
            "replica_timeout" => ms(options.replica_timeout),
            "sentinel_username" => sentinel.username.map(Into::into),
            "sentinel_password" => sentinel.password.map(|_| true.into()),
            "sentinel_tls" => Some(sentinel.tls.into()),
            "node_timeout" => ms(options.node_timeout),
            "quarantine" => options.quarantine.and_then(ms),
            other => panic!("{other} stands in the table; add it here"),
        }
    }

    #[test]
    fn defaults_are_those_of_the_shared_table() {
        let table: toml::Table = include_str!("../../../tests/spec/options.toml").parse().unwrap();
        for option in table["option"].as_array().unwrap() {
            let name = option["name"].as_str().unwrap();
            assert_eq!(default_of(name).as_ref(), option.get("default"), "the default of {name}");
        }
        assert_eq!(table["constants"]["name_bytes"].as_integer().unwrap() as usize, NAME_MAX);
    }

    #[test]
    fn bad_options_are_named() {
        let refused = |change: fn(&mut Options)| {
            let mut options = Options::default();
            change(&mut options);
            options.check().unwrap_err().to_string()
        };
        assert!(refused(|o| o.prefix = vec![b'a'; 513]).contains("prefix has 513 bytes"));
        assert!(refused(|o| o.label = Some("a\nb".into())).contains("label"));
        assert!(refused(|o| o.request_timeout = Duration::ZERO).contains("request_timeout"));
        assert!(refused(|o| Arc::make_mut(&mut o.terms).ttl = Duration::from_millis(1)).contains("ttl is 1ms"));
        let both = refused(|o| {
            o.fencing = false;
            o.min_fencing_grade = Grade::Strict;
        });
        assert!(both.contains("min_fencing_grade"));
        for refused in ["onelock_fence:{job}", "onelock_channel:a{b}", "redisson_lock__channel:x", "onelock_queue:"] {
            let error = check_name(refused.as_bytes()).unwrap_err();
            assert!(error.contains(refused.split_inclusive(':').next().unwrap()), "{error}");
        }
        for good in ["onelock_fence", "onelock_fences:{job}", "app:onelock_fence:{job}", "redisson_locks:x"] {
            assert_eq!(check_name(good.as_bytes()), Ok(()), "{good}");
        }
        assert!(check_name(b"").is_err() && check_name(&[0; 513]).is_err() && check_name(&[0; 512]).is_ok());
    }
}
