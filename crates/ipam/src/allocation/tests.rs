//! The steps of an allocation against a simulated API server: ALC and EXC here, with the fixture. Random allocations, compared
//! with a model, are in `ledger/tests/machine`.

mod import;
mod recorded;
pub(crate) mod server;

use server::{Answer, Server};

use super::*;
use crate::exclude::Exclusions;
use crate::ledger::tests::{ip, lb, lb_uid, pool, range};
use crate::ledger::{PoolSpec, Settings, StatusAddress};
use crate::types::{Owner, Phase};

/// A simulated API server, and a ledger with the pool `p` of 172.20.1.2 to .6.
struct Fixture {
    server: Server,
    ledger: Ledger,
}

fn at(last: u8) -> IpAddr {
    [172, 20, 1, last].into()
}

fn spec(last: u8, name: &str, uid: &str, phase: Phase) -> RecordSpec {
    RecordSpec {
        addr: at(last),
        pool: "p".into(),
        owner: Owner::new("ns", name, uid),
        phase,
        bound_at: Micros(i64::from(last)),
        released_at: (phase == Phase::Released).then_some(Micros(100)),
        group: None,
    }
}

/// The request of a load balancer with an address in its status.
fn named(name: &str, last: u8) -> Request {
    Request {
        status: Some(StatusAddress {
            pool: Some("p".into()),
            addr: at(last),
        }),
        ..lb(name)
    }
}

fn ends(all: &[Record]) -> String {
    let last = |record: &Record| format!(" extra {}", end(record.spec.addr));
    all.iter().map(last).collect()
}

fn end(addr: IpAddr) -> String {
    match addr {
        IpAddr::V4(v4) => format!(".{}", v4.octets()[3]),
        IpAddr::V6(v6) => v6.to_string(),
    }
}

fn told(step: &Step) -> String {
    match step {
        Step::ReadRecord(addr) => format!("read {}", end(*addr)),
        Step::VerifyOwner => "verify".to_owned(),
        Step::VerifyStatus(addr) => format!("verify {}", end(*addr)),
        Step::Delete(record) => format!("delete {}", end(record.spec.addr)),
        Step::Write {
            spec,
            replaces,
            reason,
        } => {
            let verb = replaces.map_or("create", |_| "replace");
            let reason = reason.map_or("Adopted".to_owned(), |reason| format!("{reason:?}"));
            format!("{verb} {} {reason}", end(spec.addr))
        }
        Step::Done {
            grant,
            extra_records,
            written,
        } => {
            let lost = grant.address_conflict.as_ref();
            let lost = lost.map_or(String::new(), |lost| format!(" lost {}", end(lost.addr)));
            let how = if *written { "written" } else { "held" };
            let unserved = grant.unserved.as_ref().map_or("", |_| " unserved");
            format!(
                "done {} {how}{lost}{unserved}{}",
                end(grant.addr),
                ends(extra_records)
            )
        }
        Step::Wait {
            reason,
            extra_records,
            ..
        } => format!("wait {reason}{}", ends(extra_records)),
        Step::Nothing { extra_records } => format!("nothing{}", ends(extra_records)),
        Step::GiveUp(GiveUp::Unreleased(gone)) => format!("give up, {gone} is gone"),
        Step::GiveUp(GiveUp::TooManyRounds) => "give up".to_owned(),
    }
}

fn executed(_: &mut Server, _: &Step) -> Answer {
    Answer::Executed
}

/// Other load balancers' records are stored just before each write.
fn faster(names: &[&'static str]) -> impl FnMut(&mut Server, &Step) -> Answer {
    let mut names = names.iter().copied();
    move |server, step| {
        if let Step::Write { spec, .. } = step
            && let Some(name) = names.next()
        {
            let owner = lb(name).owner;
            server.store(RecordSpec {
                owner,
                ..spec.clone()
            });
        }
        Answer::Executed
    }
}

impl Fixture {
    fn new(records: &[RecordSpec]) -> Self {
        let mut ledger = Ledger::new(Settings::default());
        ledger.set_pool(pool("p", &[range("172.20.1.0/29", "", "")]));
        let mut server = Server::default();
        for spec in records {
            server.store(spec.clone());
        }
        server.sync(&mut ledger);
        Self { server, ledger }
    }

    #[track_caller]
    fn plays(
        &mut self,
        mut allocation: Allocation<'_>,
        answer: impl FnMut(&mut Server, &Step) -> Answer,
        wanted: &[&str],
    ) -> u64 {
        let steps = self.server.play(&mut self.ledger, &mut allocation, answer);
        let steps: Vec<_> = steps.iter().map(told).collect();
        assert_eq!(steps, wanted);
        allocation.take_conflicts()
    }

    #[track_caller]
    fn acquires(&mut self, request: &Request, wanted: &[&str]) {
        self.plays(Allocation::acquire(request), executed, wanted);
    }

    #[track_caller]
    fn keeps(&mut self, request: &Request, wanted: &[&str]) {
        self.plays(Allocation::keep(request), executed, wanted);
    }
}

#[test]
fn alc_8_a_record_is_created_and_then_held() {
    let mut fixture = Fixture::new(&[]);
    fixture.acquires(&lb("a"), &["create .2 Fresh", "done .2 written"]);
    fixture.acquires(&lb("a"), &["done .2 held"]);
    fixture.keeps(&lb("a"), &["done .2 held"]);
}

#[test]
fn alc_8_of_whoever_was_faster_the_ledger_learns() {
    let mut fixture = Fixture::new(&[spec(3, "a", "a-0", Phase::Released)]);
    fixture.ledger.set_shown(&lb("y").owner.id, &[at(5)]);
    let a = lb("a");
    let mut allocation = Allocation::acquire(&a);
    let answer = faster(&["b", "c"]);
    let steps = fixture
        .server
        .play(&mut fixture.ledger, &mut allocation, answer);
    let wanted = [
        "replace .3 Sticky",
        "create .4 Fresh",
        "create .6 Fresh",
        "done .6 written",
    ];
    assert_eq!(steps.iter().map(told).collect::<Vec<_>>(), wanted);
    assert_eq!(allocation.take_conflicts(), 2);
    assert_eq!(allocation.take_conflicts(), 0, "each is counted once");
}

#[test]
fn alc_8_after_so_many_rounds_it_gives_up() {
    let mut fixture = Fixture::new(&[]);
    fixture
        .ledger
        .set_pool(pool("p", &[range("172.20.1.0/24", "", "")]));
    let answer = faster(&["faster"; 99]);
    let a = lb("a");
    let mut allocation = Allocation::acquire(&a);
    let mut steps = fixture
        .server
        .play(&mut fixture.ledger, &mut allocation, answer);
    assert_eq!(steps.pop(), Some(Step::GiveUp(GiveUp::TooManyRounds)));
    assert_eq!(steps.len(), ROUNDS as usize);
    assert_eq!(allocation.take_conflicts(), u64::from(ROUNDS));
}

#[test]
fn alc_8_what_was_refused_is_proposed_again() {
    let mut fixture = Fixture::new(&[]);
    let refused = |_: &mut Server, _: &Step| Answer::Refused;
    let a = lb("a");
    fixture.plays(Allocation::acquire(&a), refused, &["create .2 Fresh"]);
    fixture.acquires(&lb("b"), &["create .3 Fresh", "done .3 written"]);
    fixture.acquires(&a, &["create .2 Fresh", "done .2 written"]);
}

#[test]
fn alc_5_a_full_pool_is_waited_for_without_a_request() {
    let all = (2..7).map(|last| spec(last, "x", "x-1", Phase::Bound));
    let mut fixture = Fixture::new(&all.collect::<Vec<_>>());
    fixture.acquires(&lb("a"), &["wait NoAvailableIP"]);
}

#[test]
fn alc_1_an_adoption_verifies_its_owner_first() {
    let old = [
        spec(4, "a", "a-0", Phase::Bound),
        spec(5, "a", "a-0", Phase::Bound),
    ];
    let a = lb("a");
    let steps = ["verify", "replace .4 Adopted", "done .4 written extra .5"];
    let mut fixture = Fixture::new(&old);
    fixture.acquires(&a, &steps);
    assert_eq!(fixture.server.records[&at(4)].spec.owner, a.owner);
    // The other record still belongs to the earlier load balancer; it is released as such.
    fixture.acquires(&a, &["done .4 held extra .5"]);

    // Another load balancer of the name exists by now: nothing is written.
    let mut fixture = Fixture::new(&old);
    let made_anew = |_: &mut Server, _: &Step| Answer::Refused;
    fixture.plays(Allocation::acquire(&a), made_anew, &["verify"]);
    assert_eq!(
        fixture.server.records[&at(4)].spec.owner.uid.to_string(),
        "a-0"
    );

    // A later load balancer of the name was faster. It keeps its record.
    let mut fixture = Fixture::new(&old[..1]);
    let mut verified = false;
    let faster = |server: &mut Server, step: &Step| match step {
        Step::VerifyOwner if verified => Answer::Refused,
        Step::VerifyOwner => {
            verified = true;
            server.store(spec(4, "a", "a-2", Phase::Bound));
            Answer::Executed
        }
        _ => Answer::Executed,
    };
    let steps = ["verify", "replace .4 Adopted", "verify"];
    fixture.plays(Allocation::acquire(&a), faster, &steps);
}

#[test]
fn alc_2_records_of_no_use_are_deleted_first_and_run_1_a_refusal_is_no_obstacle() {
    // .1 is the gateway and .9 out of range.
    let past = [1, 9, 5].map(|last| spec(last, "a", "a-0", Phase::Released));
    let a = lb("a");
    let steps = [
        "delete .1",
        "delete .9",
        "replace .5 Sticky",
        "done .5 written",
    ];
    let mut fixture = Fixture::new(&past);
    fixture.acquires(&a, &steps);
    assert_eq!(fixture.server.records.len(), 1);

    let mut fixture = Fixture::new(&past);
    let refused = |_: &mut Server, step: &Step| match step {
        Step::Delete(_) => Answer::Refused,
        _ => Answer::Executed,
    };
    fixture.plays(Allocation::acquire(&a), refused, &steps);
    assert_eq!(fixture.server.records.len(), 3);

    // A lost response ends the allocation before anything is created; the next one continues with the remaining
    // records.
    let mut fixture = Fixture::new(&past);
    let lost = |server: &mut Server, _: &Step| {
        server.records.remove(&at(1));
        Answer::Lost
    };
    fixture.plays(Allocation::acquire(&a), lost, &steps[..1]);
    fixture.server.read(&mut fixture.ledger, at(1));
    assert!(fixture.server.records[&at(5)].spec.phase == Phase::Released);
}

#[test]
fn exc_2_an_address_that_is_excluded_while_records_of_no_use_are_deleted_is_not_given() {
    let mut fixture = Fixture::new(&[spec(9, "a", "a-0", Phase::Released)]);
    let a = lb("a");
    let mut allocation = Allocation::acquire(&a);
    let mut next = |ledger: &mut Ledger| told(&allocation.next(ledger, Micros(0)));
    assert_eq!(next(&mut fixture.ledger), "delete .9");
    let all = pool("p", &[range("172.20.1.0/29", "", "")]);
    let excluded = Exclusions::parse("172.20.1.2").unwrap();
    fixture.ledger.set_pool(PoolSpec {
        ranges: all.ranges.map(|ranges| ranges.without(&excluded)),
        ..all
    });
    assert_eq!(next(&mut fixture.ledger), "create .3 Fresh");
}

#[test]
fn alc_10_what_cannot_be_served_keeps_what_it_has_and_gets_nothing_new() {
    let mut fixture = Fixture::new(&[]);
    fixture.keeps(&lb("a"), &["nothing"]);
    // The address that its Service shows is recorded.
    fixture
        .ledger
        .set_shown(&lb("a").owner.id, &[ip("172.20.1.3")]);
    fixture.keeps(&lb("a"), &["create .3 Recorded", "done .3 written"]);
    fixture.keeps(&lb("a"), &["done .3 held"]);
}

#[test]
fn alc_10_what_an_earlier_one_has_left_is_verified_before_it_is_released() {
    let old = [spec(4, "a", "a-0", Phase::Bound)];
    let a = lb("a");
    Fixture::new(&old).keeps(&a, &["verify", "nothing extra .4"]);
    let made_anew = |_: &mut Server, _: &Step| Answer::Refused;
    Fixture::new(&old).plays(Allocation::keep(&a), made_anew, &["verify"]);
    let steps = ["verify", "replace .4 Adopted", "done .4 written"];
    Fixture::new(&old).keeps(&named("a", 4), &steps);
}

#[test]
fn alc_10_before_the_address_of_the_status_is_lost_its_record_is_read() {
    let a = named("a", 2);
    let taken = [spec(2, "x", "x-1", Phase::Bound)];
    let mut fixture = Fixture::new(&taken);
    fixture.server.store(spec(2, "a", "a-1", Phase::Bound));
    fixture.keeps(&a, &["read .2", "done .2 held"]);
    Fixture::new(&taken).keeps(&a, &["read .2", "nothing"]);
    let mut fixture = Fixture::new(&taken);
    fixture.ledger.set_shown(&a.owner.id, &[at(3)]);
    let steps = ["read .2", "create .3 Recorded", "done .3 written lost .2"];
    fixture.keeps(&a, &steps);
    let mut fixture = Fixture::new(&taken);
    fixture.ledger.block_name("172.20.1.2", Version(9));
    fixture.keeps(&a, &["nothing"]);
}
