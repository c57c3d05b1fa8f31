//! Which documents and reports are accepted. The arithmetic of keys is tested in the store.

use super::*;
use crate::mesh::tests::{row, state};
use crate::op::TaskEnd;

/// A keyring whose signatures are the signed bytes themselves, after the key.
struct Plain {
    key: PublicKey,
    trust: TrustList,
}

fn key(digit: char) -> PublicKey {
    PublicKey::new(&digit.to_string().repeat(KEY_DIGITS)).unwrap()
}

/// The keys of node `n<digit>`, which trusts these.
fn keys(digit: char, trusted: &str) -> Plain {
    let mut trust = TrustList::default();
    for digit in trusted.chars() {
        trust.add(TrustedKey { key: key(digit), node: NodeId::new(format!("n{digit}")), at: Time(1) });
    }
    Plain { key: key(digit), trust }
}

fn signature(key: &PublicKey, bytes: &[u8]) -> String {
    bytes.iter().fold(key.as_str().to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

impl Keyring for Plain {
    fn sign(&self, bytes: &[u8]) -> Seal {
        Seal { key: self.key.clone(), signature: signature(&self.key, bytes) }
    }

    fn fits(&self, seal: &Seal, bytes: &[u8]) -> bool {
        seal.signature == signature(&seal.key, bytes)
    }

    fn trust(&self) -> &TrustList {
        &self.trust
    }
}

/// The document of a loop as `maker` made it and `writer` wrote it.
fn doc(maker: &Plain, writer: &Plain) -> (LoopId, String) {
    let mut state = state();
    state.sign(maker);
    let ops = sealed(state.save(0, &[]), writer);
    let body = ops.into_iter().find_map(|op| if let Op::SaveDoc { body, .. } = op { Some(body) } else { None });
    (state.id, body.unwrap())
}

fn distrust(read: Result<MeshLoop, DocFault>) -> Distrust {
    match read {
        Err(DocFault::Distrusted { why, over: false }) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_loop_is_run_only_when_its_maker_and_its_last_writer_are_trusted() {
    let (maker, writer) = (keys('1', "1"), keys('2', "2"));
    let (id, body) = doc(&maker, &writer);
    assert_eq!(read_loop(&id, &body, &keys('3', "123")).unwrap().spec, state().spec);
    assert_eq!(distrust(read_loop(&id, &body, &keys('3', "23"))), Distrust::Maker(key('1')));
    assert_eq!(distrust(read_loop(&id, &body, &keys('3', "13"))), Distrust::Writer(key('2')));
    let said = Distrust::Maker(key('1')).to_string();
    assert!(said.ends_with(&format!("`everloop mesh trust {}`", key('1').fingerprint())), "{said}");
}

#[test]
fn every_change_of_a_signed_loop_is_found() {
    let (one, all) = (keys('1', "1"), keys('3', "123"));
    let (id, body) = doc(&one, &one);
    let changed = Distrust::Changed { id: id.clone(), key: key('1') };
    for (from, to) in
        [("test -f a", "true #"), ("\"stop\":false", "\"stop\":true"), ("\"name\":\"all\"", "\"name\":\"x\"")]
    {
        assert!(body.contains(from), "{from}");
        assert_eq!(distrust(read_loop(&id, &body.replacen(from, to, 1), &all)), changed, "{from}");
    }
    // Signed again by a trusted key, around commands that the maker did not sign.
    let mut state = read_loop(&id, &body, &all).unwrap();
    state.signed.as_mut().unwrap().spec = state.signed.as_ref().unwrap().spec.replace("test -f a", "true #");
    let ops = sealed(state.save(1, &[]), &keys('2', "2"));
    let Op::SaveDoc { body: again, .. } = &ops[0] else { panic!("{ops:?}") };
    assert_eq!(distrust(read_loop(&id, again, &all)), changed);
    // The commands that count are the signed ones.
    state = read_loop(&id, &body, &all).unwrap();
    state.spec.wanted.checks.clear();
    let ops = sealed(state.save(1, &[]), &keys('2', "2"));
    let Op::SaveDoc { body: again, .. } = &ops[0] else { panic!("{ops:?}") };
    assert_eq!(read_loop(&id, again, &all).unwrap().spec.wanted.checks.len(), 3);
    // Under another name.
    assert!(matches!(distrust(read_loop(&LoopId::new("zzzz"), &body, &all)), Distrust::Changed { .. }));
}

#[test]
fn a_loop_without_a_signature_and_one_of_a_newer_version_are_distinguished() {
    let all = keys('3', "123");
    let id = state().id;
    let plain = serde_json::to_string(&state()).unwrap();
    assert_eq!(distrust(read_loop(&id, &plain, &all)), Distrust::Unsigned { id: id.clone() });
    let ops = sealed(state().save(0, &[]), &all);
    let Op::SaveDoc { body, .. } = &ops[0] else { panic!("{ops:?}") };
    assert_eq!(distrust(read_loop(&id, body, &all)), Distrust::Unsigned { id: id.clone() }, "it has no maker");
    let old = r#"{"version":2"#;
    let old = plain.replacen(&format!("{{\"version\":{}", state().version), old, 1).replace("\"signed\":null,", "");
    assert!(old.contains("\"version\":2") && !old.contains("signed"), "as version 2 wrote it");
    assert_eq!(distrust(read_loop(&id, &old, &all)), Distrust::Unsigned { id: id.clone() });
    let newer = plain.replacen(&format!("\"version\":{}", state().version), "\"version\":99", 1);
    assert!(matches!(read_loop(&id, &newer, &all), Err(DocFault::Unreadable(why)) if why.contains("newer")));
    let over = plain.replace("\"ended\":null", "\"ended\":{\"is\":\"reached\"}");
    assert!(
        matches!(read_loop(&id, &over, &all), Err(DocFault::Distrusted { over: true, .. })),
        "nor is its end believed"
    );
}

/// The result of a task as a node of this digit reports it.
fn result(by: &Plain, names: &str, task: &TaskId, fence: Fence) -> String {
    let report =
        TaskReport { commit: Some("c0ffee".to_owned()), ..TaskReport::nothing(&NodeId::new(names), fence, "") };
    let finish = Op::Finish { task: task.clone(), fence, state: TaskEnd::Done, result: report.to_json() };
    match sealed([finish], by).remove(0) {
        Op::Finish { result, .. } => result,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_report_counts_only_when_the_node_that_it_names_signed_it_for_this_task_and_fence() {
    let (task, fence, leader) = (TaskId::new("k3f9-1"), Fence(3), keys('3', "123"));
    let one = keys('1', "1");
    let said = result(&one, "n1", &task, fence);
    assert_eq!(TaskReport::read(&said).unwrap().commit.as_deref(), Some("c0ffee"), "readable without keys");
    let verify = |result: &str, task: &TaskId, fence: Fence| verify_report((task, fence), result, &leader);
    assert_eq!(verify(&said, &task, fence), Ok(()));
    let forged =
        |verdict: Result<(), ReportFault>| assert!(matches!(verdict, Err(ReportFault::Forged(_))), "{verdict:?}");
    forged(verify(&said, &TaskId::new("k3f9-2"), fence));
    forged(verify(&said, &task, fence.next()));
    forged(verify(&said.replace("c0ffee", "decade"), &task, fence));
    forged(verify(&TaskReport::read(&said).unwrap().to_json(), &task, fence));
    forged(verify(&result(&keys('2', "2"), "n1", &task, fence), &task, fence));
    forged(verify(&result(&keys('9', "9"), "n1", &task, fence), &task, fence));
    let stranger = ReportFault::Stranger { node: NodeId::new("n9"), key: key('9') };
    assert_eq!(verify(&result(&keys('9', "9"), "n9", &task, fence), &task, fence), Err(stranger));
    assert_eq!(verify("no report", &task, fence), Ok(()), "there is nothing to verify");
}

#[test]
fn a_joint_inside_of_a_text_is_no_seal() {
    let task = TaskId::new("t");
    let report = TaskReport::nothing(&NodeId::new("n1"), Fence(1), r#"it said {"a":1,"seal":{"key":"x"}}"#);
    let text = report.to_json();
    assert_eq!(unsealed(&text), None);
    let seal = keys('1', "1").sign(&Statement::Report { task: &task, fence: Fence(1), text: &text }.bytes());
    assert_eq!(unsealed(&with_seal(&text, &seal)), Some((text, seal)));
    let rows = row(&crate::mesh::tests::perform(&mut judged(), &[])[0], crate::op::TaskState::Done, Some(&report));
    assert_eq!(crate::mesh::leader::report(&rows), Some(report));
}

fn judged() -> MeshLoop {
    let mut state = state();
    state.judge("c0".to_owned(), crate::mesh::tests::board(&[]));
    state
}

#[test]
fn parts_of_what_is_signed_cannot_be_moved() {
    let (one, two) = (Statement::Spec { id: "ab", text: "c" }, Statement::Spec { id: "a", text: "bc" });
    assert_ne!(one.bytes(), two.bytes());
    assert_ne!(one.bytes(), Statement::Loop { id: "ab", text: "c" }.bytes(), "nor be taken for something else");
}

#[test]
fn keys_are_named_by_node_fingerprint_or_whole_and_a_new_one_takes_the_place_of_the_old() {
    let mut list = keys('1', "12").trust;
    assert!(key('1').is_named(&key('1').fingerprint()) && key('1').is_named(key('1').as_str()));
    assert!(!key('1').is_named("1111") && !key('1').is_named(""), "a short beginning is no name");
    list.add(TrustedKey { key: key('9'), node: NodeId::new("n1"), at: Time(2) });
    assert!(!list.has(&key('1')) && list.node_of(&key('9')) == Some(&NodeId::new("n1")));
    assert_eq!(list.revoke("n1").len(), 1);
    assert_eq!(list.revoke(&key('2').fingerprint())[0].key, key('2'));
    assert!(list.keys.is_empty());
    assert!(PublicKey::new("xyz").is_none() && serde_json::from_str::<PublicKey>("\"12\"").is_err());
}

#[test]
fn a_listing_is_of_the_node_that_it_names() {
    let (one, node) = (keys('1', "1"), NodeId::new("n1"));
    let Op::SaveDoc { key: name, body, .. } = Listing::new(&node, &key('1'), &one).save(0) else {
        panic!("no document")
    };
    assert_eq!(name, "n1");
    assert_eq!(Listing::read(&node, &body, &one).unwrap().seal.key, key('1'));
    assert!(Listing::read(&NodeId::new("n2"), &body, &one).is_err());
    assert!(Listing::read(&node, &body.replace(&"1".repeat(KEY_DIGITS), &"2".repeat(KEY_DIGITS)), &one).is_err());
    let newer = body.replace("\"version\":1", "\"version\":9");
    assert!(Listing::read(&node, &newer, &one).unwrap_err().contains("newer"));
}

#[test]
fn a_trust_list_of_version_1_stays_readable() {
    let old = format!(r#"{{"version":1,"keys":[{{"key":"{}","node":"n1","at":5}}]}}"#, key('1').as_str());
    assert_eq!(TrustList::read(&old).unwrap().node_of(&key('1')), Some(&NodeId::new("n1")));
    assert!(TrustList::read(&old.replace("\"version\":1", "\"version\":9")).unwrap_err().contains("newer"));
}
