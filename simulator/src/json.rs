//! A trace as JSON, by hand: this crate depends on nothing but the machine room.

use std::fmt::Write as _;

use super::trace::{Fate, Lane, Trace, Way};

/// Writes JSON piece by piece.
#[derive(Default)]
pub(super) struct Json {
    text: String,
    /// A comma has to come before what follows.
    comma: bool,
}

impl Json {
    fn separate(&mut self) {
        if self.comma {
            self.text.push(',');
        }
        self.comma = true;
    }

    fn open(&mut self, bracket: char) -> &mut Json {
        self.separate();
        self.text.push(bracket);
        self.comma = false;
        self
    }

    fn close(&mut self, bracket: char) -> &mut Json {
        self.text.push(bracket);
        self.comma = true;
        self
    }

    fn key(&mut self, key: &str) -> &mut Json {
        self.string(key);
        self.text.push(':');
        self.comma = false;
        self
    }

    pub(super) fn string(&mut self, value: &str) -> &mut Json {
        self.separate();
        self.text.push('"');
        for c in value.chars() {
            match c {
                '"' | '\\' => self.text.extend(['\\', c]),
                c if c < ' ' => {
                    let _ = write!(self.text, "\\u{:04x}", c as u32);
                }
                c => self.text.push(c),
            }
        }
        self.text.push('"');
        self
    }

    fn number(&mut self, value: impl std::fmt::Display) -> &mut Json {
        self.separate();
        let _ = write!(self.text, "{value}");
        self
    }

    fn maybe(&mut self, value: Option<impl std::fmt::Display>) -> &mut Json {
        match value {
            Some(value) => self.number(value),
            None => self.number("null"),
        }
    }

    pub(super) fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Json, &T)) -> &mut Json {
        self.open('[');
        for item in items {
            each(self, item);
        }
        self.close(']')
    }

    pub(super) fn objects<T>(&mut self, key: &str, items: &[T], mut each: impl FnMut(&mut Json, &T)) -> &mut Json {
        self.key(key).list(items, |json, item| {
            json.object(|json| each(json, item));
        })
    }

    pub(super) fn object(&mut self, fill: impl FnOnce(&mut Json)) -> &mut Json {
        self.open('{');
        fill(self);
        self.close('}')
    }

    pub(super) fn entry(&mut self, key: &str, value: &str) -> &mut Json {
        self.key(key).string(value)
    }

    fn lane(&mut self, lane: Lane) -> &mut Json {
        let (what, index) = match lane {
            Lane::Client(index) => ("client", index),
            Lane::Server(index) => ("server", index),
            Lane::Resource => ("resource", 0),
            Lane::Network => ("network", 0),
        };
        self.entry("lane", what).key("index").number(index)
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

fn way(way: Way) -> &'static str {
    match way {
        Way::Request => "request",
        Way::Copy => "copy",
        Way::Reply => "reply",
        Way::Notice => "notice",
    }
}

fn fate(fate: Fate) -> &'static str {
    match fate {
        Fate::UnderWay => "under way",
        Fate::Arrived => "arrived",
        Fate::Lost => "lost",
    }
}

impl Trace {
    /// The whole as one JSON object; times are nanoseconds.
    pub fn to_json(&self) -> String {
        let mut json = Json::default();
        json.object(|json| self.fill(json));
        json.into_text()
    }

    fn fill(&self, json: &mut Json) {
        json.key("clients").list(&self.clients, |json, ppm| _ = json.number(ppm));
        json.key("servers").list(&self.servers, |json, ppm| _ = json.number(ppm));
        json.key("locks").list(&self.locks, |json, kind| _ = json.string(kind));
        json.key("ttl").number(self.ttl).key("calm").number(self.calm).key("end").number(self.end);
        json.key("cut").number(self.cut);
        json.objects("messages", &self.messages, |json, message| {
            json.entry("way", way(message.way)).entry("fate", fate(message.fate)).entry("text", &message.text);
            json.key("client").number(message.client).key("server").number(message.server);
            json.key("sent").number(message.sent).key("end").maybe(message.end).key("late").number(message.late);
        });
        json.objects("leases", &self.leases, |json, lease| {
            json.key("client").number(lease.client).key("lock").number(lease.lock).key("claim").number(lease.claim);
            json.key("token").maybe(lease.token).key("from").number(lease.from);
            json.objects("deadlines", &lease.deadlines, |json, (at, deadline)| {
                json.key("at").number(at).key("deadline").number(deadline);
            });
            json.key("end").maybe(lease.end.as_ref().map(|(at, _)| at));
            json.entry("how", lease.end.as_ref().map_or("", |(_, how)| how));
        });
        json.objects("keys", &self.keys, |json, key| {
            json.key("server").number(key.server).key("lock").number(key.lock).key("claim").maybe(key.claim);
            json.key("from").number(key.from).key("until").maybe(key.until).key("expires").maybe(key.expires);
        });
        json.objects("stops", &self.stops, |json, stop| {
            json.lane(stop.lane).entry("what", stop.what).key("from").number(stop.from).key("until").maybe(stop.until);
        });
        json.objects("writes", &self.writes, |json, write| {
            json.key("at").number(write.at).key("client").number(write.client).key("lock").number(write.lock);
            json.key("claim").number(write.claim).key("token").number(write.token);
            json.key("admitted").number(write.admitted).key("late").number(write.late);
        });
        json.objects("steps", &self.steps, |json, step| {
            json.key("at").number(step.at).lane(step.lane).entry("what", step.what).entry("text", &step.text);
            json.key("message").maybe(step.message).key("lease").maybe(step.lease);
        });
        json.key("broken");
        match &self.broken {
            None => json.number("null"),
            Some(broken) => json.object(|json| {
                json.key("at").number(broken.at).entry("property", broken.property).entry("detail", &broken.detail);
            }),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::Json;

    #[test]
    fn what_is_written_is_json() {
        let mut json = Json::default();
        json.object(|json| {
            json.entry("a\"b", "c\\d\n").key("n").maybe(None::<u64>).key("list").list(&[1, 2], |json, item| {
                json.number(item);
            });
            json.objects("objects", &["x", "y"], |json, item| {
                json.entry("name", item);
            });
            json.key("last").number(true);
        });
        let expected =
            r#"{"a\"b":"c\\d\u000a","n":null,"list":[1,2],"objects":[{"name":"x"},{"name":"y"}],"last":true}"#;
        assert_eq!(json.into_text(), expected);
    }
}
