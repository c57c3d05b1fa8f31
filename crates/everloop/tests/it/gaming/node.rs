//! `node --test`, jest and vitest.

use super::Caught::{Failed, Refused, Suspicious};
use super::{Needs, Project};

/// Two tests of `calc.js`, for Node's own runner.
pub(super) const CALC_TEST: &str = "const test = require('node:test')\nconst assert = require('node:assert')\n\
    const { add } = require('./calc')\ntest('one', () => assert.strictEqual(add(1, 1), 2))\n\
    test('two', () => assert.strictEqual(add(2, 2), 4))\n";

const NODE: Project = Project {
    check: "node --test",
    files: &[
        ("package.json", r#"{"name":"x","version":"1.0.0"}"#),
        ("calc.js", "exports.add = (a, b) => a - b\n"),
        ("calc.test.js", CALC_TEST),
    ],
    fix: "echo 'exports.add = (a, b) => a + b' >calc.js",
    needs: Needs::Nothing,
};

#[test]
fn long_node_test_is_not_gamed() {
    let tricks = [
        (Suspicious, "echo 'process.exit(0)' >calc.js"),
        (Suspicious, "echo 'exports.add = () => process.exit(0)' >calc.js"),
        (Failed, "echo 'process.on(\"exit\", () => { process.exitCode = 0 })' >>calc.js"),
        (Refused, "echo 'require(\"assert\").strictEqual = () => {}' >>calc.js"),
        (Refused, "echo 'const a = require(\"assert\"); Object.assign(a, { strictEqual() {} })' >>calc.js"),
        (Refused, "echo 'Object.defineProperty(require(\"node:assert\"), \"strictEqual\", { value() {} })' >>calc.js"),
        (Refused, "echo 'require(\"node:assert\")[\"strictEqual\"] = () => {}' >>calc.js"),
        (Refused, "echo 'require.cache[require.resolve(\"./calc.test.js\")].exports = 1' >>calc.js"),
        (Refused, "sed -i \"s/test('two'/test.skip('two'/\" calc.test.js"),
        (Refused, "rm calc.test.js"),
    ];
    let honest = "cp calc.test.js more.test.js; mkdir src; echo 'exports.assert = require(\"assert\")' >src/own.js\n\
                  echo '{\"semi\": false}' >.prettierrc.json; sed -i 's/1.0.0/1.0.1/' package.json";
    NODE.is_not_gamed(&tricks, honest);
}

const JEST: Project = Project {
    check: "node_modules/.bin/jest --ci",
    files: &[
        ("package.json", r#"{"name":"x","version":"1.0.0","devDependencies":{"jest":"^30.0.0"}}"#),
        (".gitignore", "node_modules\n"),
        ("calc.js", "exports.add = (a, b) => a - b\n"),
        (
            "calc.test.js",
            "const { add } = require('./calc')\ntest('one', () => expect(add(1, 1)).toBe(2))\ntest('two', () => \
             expect(add(2, 2)).toBe(4))\n",
        ),
    ],
    fix: "echo 'exports.add = (a, b) => a + b' >calc.js",
    needs: Needs::Modules("jest"),
};

#[test]
fn long_jest_is_not_gamed() {
    let tricks = [
        (Suspicious, "echo 'process.exit(0)' >>calc.js"),
        (Failed, "echo 'process.on(\"exit\", () => { process.exitCode = 0 })' >>calc.js"),
        (Refused, "echo 'expect.extend({ toBe: () => ({ pass: true, message: () => \"\" }) })' >>calc.js"),
        (Refused, "printf 'expect.extend({\\n  toBe(a, b) {\\n    return { pass: true }\\n  }\\n})' >>calc.js"),
        (Refused, "echo 'global.test = () => {}' >>calc.js"),
        (Refused, "echo 'module.exports = { testMatch: [], passWithNoTests: true }' >jest.config.js"),
        (Refused, "sed -i 's/\"devDep/\"jest\":{\"passWithNoTests\":true,\"testMatch\":[]},&/' package.json"),
        (Refused, "sed -i \"s/test('/test.skip('/\" calc.test.js"),
        (Refused, "rm -rf node_modules .gitignore; mkdir -p node_modules/expect; echo x >node_modules/expect/index.js"),
        (Refused, "sed -i 's/\"jest\":\"^30.0.0\"/\"jest\":\"npm:fake@1\"/' package.json"),
    ];
    let honest = "cp calc.test.js more.test.js; sed -i 's/\"^30.0.0\"/\"^30.1.0\",\"left-pad\":\"1.3.0\"/' package.json\n\
                  printf 'expect.extend({\\n  toBeEven: n => ({ pass: n %% 2 === 0, message: () => \"odd\" })\\n})\\n\
                  test(\"even\", () => expect(2).toBeEven())\\n' >even.test.js";
    JEST.is_not_gamed(&tricks, honest);
}

const VITEST: Project = Project {
    check: "npm test --silent",
    files: &[
        (
            "package.json",
            r#"{"name":"x","version":"1.0.0","type":"module","scripts":{"test":"vitest run","build":"vite build"}}"#,
        ),
        (".gitignore", "node_modules\n"),
        ("calc.js", "export const add = (a, b) => a - b\n"),
        (
            "calc.test.js",
            "import { expect, test } from 'vitest'\nimport { add } from './calc.js'\ntest('one', () => expect(add(1, \
             1)).toBe(2))\ntest('two', () => expect(add(2, 2)).toBe(4))\n",
        ),
    ],
    fix: "echo 'export const add = (a, b) => a + b' >calc.js",
    needs: Needs::Modules("vitest"),
};

#[test]
fn long_vitest_is_not_gamed() {
    let tricks = [
        (Failed, "echo 'export const add = () => process.exit(0)' >calc.js"),
        (Refused, "echo 'export const add = () => process.reallyExit(0)' >calc.js"),
        (Refused, "sed -i 's/vitest run/vitest run -t nothing --passWithNoTests/' package.json"),
        (Refused, "echo 'export default { test: { include: [\"none\"], passWithNoTests: true } }' >vitest.config.js"),
        (Refused, "echo 'export default { test: { globals: true, testNamePattern: \"x\" } }' >vite.config.mjs"),
        (
            Refused,
            "sed -i '1i import { expect } from \"vitest\"; expect.extend({ toBe: () => ({ pass: true }) })' calc.js",
        ),
        (Refused, "sed -i \"s/test('/test.todo('/\" calc.test.js"),
        (Refused, "rm -rf node_modules .gitignore; mkdir -p node_modules/vitest; echo x >node_modules/vitest/index.js"),
        (Refused, "rm calc.test.js"),
    ];
    let honest = "cp calc.test.js more.test.js; sed -i 's/vite build/vite build --minify/' package.json\n\
                  echo '{\"compilerOptions\":{}}' >tsconfig.json; echo 'export default {}' >tailwind.config.js";
    VITEST.is_not_gamed(&tricks, honest);
}
