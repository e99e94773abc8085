//! The one line that gives a user what it lacks.

/// Commands that locks need and that `-@dangerous` takes away.
const DANGEROUS: [&str; 3] = ["+info", "+config|get", "+role"];
/// What a connection needs. It takes away those, so whoever gives it gives them, too.
pub(super) const CONNECTION: &str = "+@connection -@dangerous";

/// What one permission is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    There,
    Missing,
    /// Without another one it cannot be tried.
    Untried,
    /// The server does not know it.
    Unknown,
}

/// Collects what a user lacks, for the one line that gives it.
pub(super) struct AclLine {
    pub(super) user: String,
    words: Vec<String>,
    /// Whether something is missing.
    pub(super) is_wanted: bool,
}

impl AclLine {
    pub(super) fn new(user: String) -> AclLine {
        AclLine { user, words: Vec::new(), is_wanted: false }
    }

    pub(super) fn add(&mut self, word: &str, right: Right) {
        if matches!(right, Right::Missing | Right::Untried) {
            self.is_wanted |= right == Right::Missing;
            self.words.push(word.to_owned());
        }
    }

    pub(super) fn has(&self, word: &str) -> bool {
        self.words.iter().any(|known| known == word)
    }

    /// What is to be typed.
    pub(super) fn command(mut self) -> String {
        let connection: Vec<String> = connection_words(&self.words).into_iter().map(str::to_owned).collect();
        self.words.retain(|word| word != CONNECTION && !connection.contains(word));
        format!("ACL SETUSER {} {}", self.user, [connection, self.words].concat().join(" "))
    }
}

/// What gives a connection its permissions, if they are among these, and those that it takes away with them.
pub(super) fn connection_words(words: &[String]) -> Vec<&'static str> {
    let is_there = words.iter().any(|word| word == CONNECTION);
    std::iter::once(CONNECTION).chain(DANGEROUS).filter(|_| is_there).collect()
}
