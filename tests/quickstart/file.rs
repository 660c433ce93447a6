//! Limits from a file: `--config` and `--check`.

use super::*;

const FILE: &str = r#"
[limits]
search = { rule = "token-bucket 2/1h", key = "header x-api-key" }
address = { rule = "token-bucket 5/1h", key = "peer-ip" }

[[routes]]
match = "/decision"
limits = ["search", "address"]

[default]
limits = ["address"]
"#;

/// A file of the test.
struct Limits(PathBuf);

impl Limits {
    fn new(name: &str, text: &str) -> Self {
        let name = format!("tollgate-quickstart-{}-{name}.toml", std::process::id());
        let file = Self(env::temp_dir().join(name));
        file.replace(text);
        file
    }

    fn replace(&self, text: &str) {
        let new = self.0.with_extension("new");
        std::fs::write(&new, text).expect("a file");
        std::fs::rename(new, &self.0).expect("a file");
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_server_follows_a_file() {
    let file = Limits::new("followed", FILE);
    let server = Server::start(&["--config", file.path()]);
    let key = "x-api-key: ann\r\n";
    let decided = |path| {
        (0..4)
            .filter(|_| server.get_with(path, key).is_admitted())
            .count()
    };
    assert_eq!(decided("/decision"), 2);
    assert_eq!(server.get("/decision").status, 400);
    assert_eq!(decided("/"), 3);
    assert_eq!(decided("/"), 0);

    // A mistake changes nothing.
    file.replace(&FILE.replace("5/1h", "5/1x"));
    let output = |part: &str| {
        for _ in 0..100 {
            let line = server.program.output.recv_timeout(SOON).expect("a line");
            if line.contains(part) {
                return line;
            }
        }
        panic!("no line with {part}");
    };
    output("the limits stay as they are");
    assert_eq!(decided("/"), 0);
    file.replace(&FILE.replace("token-bucket 5/1h\", key", "fixed-window 7/1h\", key"));
    let line = output("limit `address`");
    assert!(line.contains("all its clients begin anew"), "{line}");
    assert_eq!(decided("/"), 4);
}

#[test]
fn a_file_is_checked() {
    let check = |text: &str| {
        let file = Limits::new("checked", text);
        let (status, output, errors) = Program::quickstart(&["--check", file.path()]).end(SOON);
        assert_eq!(errors, "");
        (status.code(), output.replace(file.path(), "limits.toml"))
    };
    assert_eq!(check(FILE).0, Some(0));
    let (code, output) = check(&FILE.replace("\"search\", \"address\"", "\"search\""));
    assert_eq!(code, Some(3));
    assert!(
        output.starts_with("limits.toml:3:1: limits.search: clients choose"),
        "{output}"
    );
    let (code, output) = check(&FILE.replace("search = {", "serch = {"));
    assert_eq!(code, Some(1));
    assert!(output.contains("did you mean `serch`?"), "{output}");
}

#[test]
fn a_file_stands_for_rule_and_key() {
    for (args, sentence) in [
        (
            &["--config", "a.toml", "--rule", "token-bucket 5/1h"][..],
            "does not go with --rule",
        ),
        (
            &["--config", "a.toml", "--key", "global"],
            "does not go with --key",
        ),
        (&["--config", "a.toml", "--demo"], "does not go with --demo"),
        (
            &["--config", "a.toml", "--check", "a.toml"],
            "--config and --check together",
        ),
    ] {
        let (status, _, errors) = Program::quickstart(args).end(SOON);
        assert_eq!(status.code(), Some(2), "{errors}");
        assert!(errors.contains(sentence), "{errors}");
    }
    let (status, _, errors) = Program::quickstart(&["--config", "/nowhere.toml"]).end(SOON);
    assert_eq!(status.code(), Some(1));
    assert!(errors.contains("expected a file of limits"), "{errors}");
}
