//! The guard for a resource that is itself a value on the server.

use onelock::FENCE_GUARD_SCRIPT;
use onelock_tests::resp::text;
use onelock_tests::servers::{Server, all_flavors};

/// What the server says to a write of `value` with `token`: `[1 token]`, `[0 highest]`, or its error.
fn write(server: &Server, token: &str, value: &str) -> String {
    let command = ["EVAL", FENCE_GUARD_SCRIPT, "2", "stock:{42}", "fence:{42}", token, value];
    server.try_cmd(&command).map_or_else(|error| error, |reply| text(&reply))
}

#[test]
fn a_lower_token_is_refused_and_an_equal_one_is_the_same_holder() {
    for flavor in all_flavors() {
        let server = Server::start(flavor);
        // two tokens that differ in the last digit only, at the upper end of the exact numbers
        let (old, new) = ("9007199254740989", "9007199254740990");
        let admitted = write(&server, new, "7");
        assert!(admitted.contains("int(1)") && admitted.contains(new), "{flavor:?}: {admitted}");
        assert_eq!(write(&server, new, "8"), admitted, "{flavor:?}: the same holder again");
        let refused = write(&server, old, "9");
        assert!(refused.contains("int(0)") && refused.contains(new), "{flavor:?}: {refused}");
        assert_eq!(server.text(&["GET", "stock:{42}"]), "8", "{flavor:?}: the late write left nothing");
        assert!(write(&server, "a lot", "9").contains("no number"), "{flavor:?}");
    }
}
