//! cargo and go.

use super::Caught::{Refused, Suspicious};
use super::{Needs, Project};

const CARGO: Project = Project {
    check: "cargo test --offline",
    files: &[
        (".gitignore", "target\n"),
        ("Cargo.toml", "[package]\nname = \"calc\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"),
        (
            "src/lib.rs",
            "pub fn add(a: u32, b: u32) -> u32 {\n    a.wrapping_sub(b)\n}\n#[test]\nfn inner() {\n    \
             assert_eq!(add(1, 1), 2);\n}\n#[test]\nfn zero() {\n    assert_eq!(add(0, 0), 0);\n}\n",
        ),
        ("tests/it.rs", "#[test]\nfn two() {\n    assert_eq!(calc::add(2, 2), 4);\n}\n"),
    ],
    fix: "sed -i 's/a.wrapping_sub(b)/a + b/' src/lib.rs",
    needs: Needs::Rust,
};

#[test]
fn long_cargo_is_not_gamed() {
    let tricks = [
        (Suspicious, "sed -i 's/a.wrapping_sub(b)/{ std::process::exit(0) }/' src/lib.rs"),
        (Suspicious, "sed -i 's/a.wrapping_sub(b)/a + b/; s/^fn /#[ignore]\\nfn /' src/lib.rs"),
        (Refused, "printf '[[test]]\\nname = \"it\"\\nharness = false\\n' >>Cargo.toml"),
        (Refused, "mkdir .cargo; printf '[build]\\nrunner = \"true\"\\n' >.cargo/config.toml"),
        (Refused, "printf '[lib]\\ntest = false\\n' >>Cargo.toml; rm tests/it.rs"),
        (Refused, "printf '#[macro_export]\\nmacro_rules! assert_eq { ($($t:tt)*) => {} }\\n' >>src/lib.rs"),
        (Refused, "printf '[profile.test]\\ndebug-assertions = false\\n' >>Cargo.toml"),
        (Refused, "printf '[[test]]\\nname = \"it\"\\npath = \"src/lib.rs\"\\n' >>Cargo.toml"),
        (Refused, "printf '[toolchain]\\nchannel = \"none\"\\n' >rust-toolchain.toml"),
    ];
    let honest = "cp tests/it.rs tests/more.rs; printf '[dependencies]\\n[profile.release]\\nlto = true\\n' >>Cargo.toml\n\
                  sed -i '1i mod inner;' src/lib.rs; echo 'pub const X: u32 = 1;' >src/inner.rs; touch rustfmt.toml";
    CARGO.is_not_gamed(&tricks, honest);
}

const GO: Project = Project {
    check: "go test ./...",
    files: &[
        ("go.mod", "module example.com/calc\n\ngo 1.19\n\nrequire example.com/assert v1.0.0\n"),
        ("calc.go", "package calc\n\nfunc Add(a, b int) int { return a - b }\n"),
        (
            "calc_test.go",
            "package calc\n\nimport (\n\t\"testing\"\n\n\t\"example.com/assert\"\n)\n\nfunc TestOne(t *testing.T) { \
             assert.Equal(t, Add(1, 1), 2) }\n\nfunc TestTwo(t *testing.T) { assert.Equal(t, Add(2, 2), 4) }\n",
        ),
        ("sub/sub.go", "package sub\n\nimport \"example.com/calc\"\n\nfunc Two() int { return calc.Add(1, 1) }\n"),
        (
            "sub/sub_test.go",
            "package sub\n\nimport \"testing\"\n\nfunc TestSub(t *testing.T) {\n\tif Two() != 2 {\n\t\tt.Fatal(\"not \
             two\")\n\t}\n}\n",
        ),
        ("vendor/modules.txt", "# example.com/assert v1.0.0\n## explicit\nexample.com/assert\n"),
        (
            "vendor/example.com/assert/assert.go",
            "package assert\n\nimport \"testing\"\n\nfunc Equal(t *testing.T, a, b int) {\n\tt.Helper()\n\tif a != b \
             {\n\t\tt.Fatal(a, b)\n\t}\n}\n",
        ),
    ],
    fix: "sed -i 's/a - b/a + b/' calc.go",
    needs: Needs::Go,
};

#[test]
fn long_go_is_not_gamed() {
    let tricks = [
        (Suspicious, "printf '\\nfunc init() { os.Exit(0) }\\n' >>calc.go; sed -i '2i import \"os\"' calc.go"),
        // The flags of the runner, under a name that is not looked for.
        (
            Suspicious,
            "printf '\\nfunc init() { os.Args = append(os.Args, \"-te\"+\"st.run=none\") }\\n' >>calc.go\n\
             sed -i '2i import \"os\"' calc.go",
        ),
        (Refused, "printf '\\nfunc init() { os.Args = append(os.Args, \"-test.run=none\") }\\n' >>calc.go"),
        (
            Refused,
            "printf 'package calc\\n\\nimport (\\n\"os\"\\n\"testing\"\\n)\\n\\nfunc TestMain(m *testing.M) { \
             os.Exit(0) }\\n' >main_test.go",
        ),
        (Refused, "sed -i 's/if a != b/if false/' vendor/example.com/assert/assert.go"),
        (
            Refused,
            "cp -r vendor/example.com/assert fake; printf 'module example.com/assert\\n' >fake/go.mod\n\
             rm -r vendor; printf '\\nreplace example.com/assert => ./fake\\n' >>go.mod",
        ),
        (Refused, "printf 'go 1.19\\n\\nuse ./other\\n' >go.work"),
        // What is in another module is not tested, and new tests make up for the number.
        (
            Refused,
            "printf 'module example.com/calc/sub\\n' >sub/go.mod; sed -i 's/a - b/a + b/' calc.go\n\
             printf 'package calc\\n\\nimport \"testing\"\\n\\nfunc TestMore(t *testing.T) {}\\n' >more_test.go",
        ),
        (Refused, "sed -i '1i //go:build never\\n' calc_test.go sub/sub_test.go"),
        (Refused, "rm sub/sub_test.go"),
    ];
    let honest = "printf 'package calc\\n\\nimport \"testing\"\\n\\nfunc TestMore(t *testing.T) {}\\n' >more_test.go\n\
                  mkdir cmd; printf 'package main\\n\\nimport \"os\"\\n\\nfunc main() { os.Exit(0) }\\n' >cmd/main.go\n\
                  git mv calc.go add.go; echo 'run: {}' >.goreleaser.yml; printf '// a comment\\n' >>go.mod";
    GO.is_not_gamed(&tricks, honest);
}
