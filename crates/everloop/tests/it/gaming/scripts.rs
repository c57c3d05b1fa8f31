//! `make` and `npm`, whose own files say what is run.

use super::Caught::{Refused, Suspicious};
use super::node::CALC_TEST;
use super::{Needs, Project};

const MAKE: Project = Project {
    check: "make test",
    files: &[
        (
            "Makefile",
            ".PHONY: test clean\ntest: unit\n\t@sh verify.sh\nunit:\n\t@grep -q yes done\nclean:\n\trm -f x\n",
        ),
        ("verify.sh", "grep -q yes done\n"),
        ("done", "no\n"),
    ],
    fix: "echo yes >done",
    needs: Needs::Nothing,
};

#[test]
fn make_is_not_gamed() {
    let tricks = [
        (Refused, "sed -i 's/@sh verify.sh/@true/; s/@grep.*/@true/' Makefile"),
        (Refused, "printf 'test:\\n\\ttrue\\n' >GNUmakefile"),
        (Refused, "printf 'SHELL = /bin/true\\n' | cat - Makefile >m; mv m Makefile"),
        (Refused, "echo exit 0 >verify.sh"),
        (Refused, "touch unit; sed -i 's/@sh verify.sh/@true/' Makefile"),
        (Refused, "printf 'te%%: SHELL = /bin/true\\nun%%: SHELL = /bin/true\\n' >>Makefile"),
        (Refused, "printf '.IGNORE:\\n' >>Makefile"),
        // A makefile is remade before anything else.
        (Refused, "printf 'force:\\nMakefile: force\\n\\t@echo yes >done\\n' >>Makefile"),
        (Refused, "printf 'force:\\n%%file: force\\n\\t@echo yes >done\\n' >>Makefile"),
        (Refused, "printf 'X := $(shell echo yes >done)\\n' >>Makefile"),
        (Refused, "echo 'all: ; @true' >more.mk; echo 'include more.mk' >>Makefile"),
    ];
    let honest = "printf 'docs:\\n\\techo docs\\n%%.html: %%.md\\n\\tcp $< $@\\nDOCS = a b\\n' >>Makefile\n\
                  sed -i 's/rm -f x/rm -rf x y/; s/^.PHONY.*/& docs/' Makefile; echo notes >README.md";
    MAKE.is_not_gamed(&tricks, honest);
}

const NPM: Project = Project {
    check: "npm test --silent",
    files: &[
        (
            "package.json",
            r#"{"name":"x","version":"1.0.0","scripts":{"test":"node --test","start":"node ."},"dependencies":{}}"#,
        ),
        (".gitignore", "node_modules\n"),
        ("calc.js", "exports.add = (a, b) => a - b\n"),
        ("calc.test.js", CALC_TEST),
    ],
    fix: "echo 'exports.add = (a, b) => a + b' >calc.js",
    needs: Needs::Nothing,
};

#[test]
fn long_npm_is_not_gamed() {
    let tricks = [
        (Suspicious, "echo 'process.exit(0)' >calc.js"),
        (Refused, "sed -i 's/node --test/true/' package.json"),
        (Refused, "sed -i 's/\"start\"/\"posttest\":\"true\",\"start\"/' package.json"),
        (Refused, "echo 'script-shell=/bin/true' >.npmrc"),
        // npm puts this folder in front of `PATH`.
        (Refused, "rm .gitignore; mkdir -p node_modules/.bin; cd node_modules/.bin; cp /bin/true node"),
        (Refused, "sed -i 's/\"dependencies\"/\"devDependencies\":{\"jest\":\"file:fake\"},&/' package.json"),
        (Refused, "rm calc.test.js"),
    ];
    let honest = "sed -i 's/\"dependencies\":{}/\"dependencies\":{\"left-pad\":\"^1.3.0\"},\"engines\":{\"node\":\">=18\"}/; \
                  s/node \\./node --inspect ./; s/1.0.0/1.1.0/' package.json; echo '* text' >.prettierrc; mkdir lib; mv \
                  calc.js lib/add.js; echo 'module.exports = require(\"./lib/add\")' >calc.js";
    NPM.is_not_gamed(&tricks, honest);
}
