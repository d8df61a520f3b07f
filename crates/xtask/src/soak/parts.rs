//! Owns the definition of the soak: its parts, the tests in each, and the amount to run of each.

/// The unit of a test's progress, and the variable that sets the amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Rounds, each with its own seed: `HLB_ROUNDS`.
    Rounds,
    /// Schedules of the model, each with its own seed: `HLB_SCHEDULES`.
    Schedules,
    /// Cases of a property test: `PROPTEST_CASES`. The seed is that of the first one.
    Cases,
    /// Objects of each kind: `HLB_OBJECTS`. The seed is that of the first one.
    Objects,
    /// Seconds of libFuzzer.
    Seconds,
    /// The test as a whole.
    Runs,
}

impl Unit {
    /// The variable that sets the amount.
    pub(crate) const fn variable(self) -> Option<&'static str> {
        match self {
            Self::Rounds => Some("HLB_ROUNDS"),
            Self::Schedules => Some("HLB_SCHEDULES"),
            Self::Cases => Some("PROPTEST_CASES"),
            Self::Objects => Some("HLB_OBJECTS"),
            Self::Seconds | Self::Runs => None,
        }
    }

    /// The variable that sets the seed.
    pub(crate) const fn seed_variable(self) -> &'static str {
        match self {
            Self::Cases => "PROPTEST_RNG_SEED",
            _ => "HLB_SEED",
        }
    }

    /// The display name of the unit, plural.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rounds => "rounds",
            Self::Schedules => "schedules",
            Self::Cases => "cases",
            Self::Objects => "objects of each kind",
            Self::Seconds => "seconds",
            Self::Runs => "runs",
        }
    }

    /// Units in the first piece, while the duration of one is unknown: half a minute to a few minutes.
    pub(crate) const fn first_piece(self) -> u64 {
        match self {
            Self::Rounds => 3,
            Self::Schedules => 20_000,
            Self::Cases => 2_000,
            Self::Objects => 1_000,
            Self::Seconds => 60,
            Self::Runs => 1,
        }
    }
}

/// Tests of a part with the same amount.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tests {
    /// Their package; the binary is found by name.
    pub(crate) package: &'static str,
    /// The prefix of their names.
    pub(crate) names: &'static str,
    /// Least number of such tests; fewer mean that one was renamed.
    pub(crate) least: usize,
    /// Their unit.
    pub(crate) unit: Unit,
    /// The amount of each.
    pub(crate) total: u64,
}

/// A part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// Its tests.
    pub(crate) tests: &'static [Tests],
}

/// Package of the fuzz targets, whose tests are programs of `fuzz/`.
pub(crate) const FUZZ: &str = "fuzz";
const OPERATOR: &str = "harvester-load-balancer";
const E2E: &str = "harvester-lb-e2e";
const IPAM: &str = "harvester-lb-ipam";
const PROBER: &str = "harvester-lb-prober";

const fn runs(names: &'static str) -> Tests {
    Tests {
        package: E2E,
        names,
        least: 1,
        unit: Unit::Runs,
        total: 1,
    }
}

/// Tests that kill or stop something in each round.
const fn rounds(names: &'static str, least: usize) -> Tests {
    Tests {
        package: E2E,
        names,
        least,
        unit: Unit::Rounds,
        total: 200,
    }
}

const fn cases(package: &'static str, names: &'static str) -> Tests {
    Tests {
        package,
        names,
        least: 1,
        unit: Unit::Cases,
        total: 200_000,
    }
}

/// All parts, in the order in which they run.
pub(crate) const PARTS: [Part; 8] = [
    Part {
        name: "properties",
        tests: &[
            cases(IPAM, "the_ledger_behaves_as_the_model"),
            cases(IPAM, "dhc_3_never_two_addresses"),
            cases(IPAM, "dhc_1_indices_follow_the_clients"),
            cases(IPAM, "alc_3_order_is_round_robin"),
            cases(IPAM, "alc_5_room_is_what_a_count_says"),
            cases(IPAM, "ipa_4_those_that_a_look_at_all_finds"),
            cases(IPAM, "sel_agrees_with_the_passes"),
            cases(IPAM, "exc_2_usable_is_what"),
            cases(PROBER, "is_that_of_the_naive_model"),
        ],
    },
    Part {
        name: "model",
        tests: &[Tests {
            package: OPERATOR,
            names: "every_order_of_events",
            least: 1,
            unit: Unit::Schedules,
            total: 2_000_000,
        }],
    },
    Part {
        name: "hostile",
        tests: &[
            Tests {
                package: OPERATOR,
                names: "input_mutated_",
                least: 7,
                unit: Unit::Objects,
                total: 400_000,
            },
            Tests {
                package: E2E,
                names: "input_mutated_objects_through",
                least: 1,
                unit: Unit::Objects,
                total: 200_000,
            },
            Tests {
                package: E2E,
                names: "input_mutated_objects_past",
                least: 1,
                unit: Unit::Objects,
                total: 40_000,
            },
        ],
    },
    Part {
        name: "fuzz",
        tests: &[Tests {
            package: FUZZ,
            names: "",
            least: 9,
            unit: Unit::Seconds,
            total: 1_800,
        }],
    },
    Part {
        name: "leaders",
        tests: &[rounds("ipa_5_leaders_stopped_and_resumed", 1)],
    },
    Part {
        name: "faults",
        tests: &[
            runs("alc_8_api_server_is_unavailable"),
            runs("alc_8_writes_are_slow"),
            runs("alc_8_a_third_is_refused"),
            runs("alc_8_answers_are_lost"),
            runs("alc_8_one_resource_is_refused"),
            runs("alc_8_watches_and_lists_are_cut"),
            runs("alc_8_every_fault_at_once"),
            runs("alc_8_api_server_stands_still"),
            runs("alc_8_api_server_is_killed"),
        ],
    },
    Part {
        name: "crash",
        tests: &[
            rounds("alc_8_killed_amid", 2),
            rounds("alc_1_killed_amid", 1),
        ],
    },
    Part {
        name: "leases",
        tests: &[
            rounds("dhc_2_killed_in_each_state", 2),
            rounds("dhc_2_killed_while_the_server_is_away", 1),
            rounds("dhc_2_killed_after_a_decline", 1),
            // A minute each.
            rounds("dhc_2_operator_killed_in_each_state", 1),
            runs("dhc_2_the_api_server_is_away"),
            runs("dhc_2_a_leader_that_ends"),
            runs("dhc_2_a_paused_leader"),
            runs("dhc_2_killed_and_restarted"),
            runs("dhc_3_the_service_ends"),
            runs("dhc_3_an_interface_that_is_down"),
            runs("dhc_1_leases_while_three_of_ten_frames_are_lost"),
            runs("dhc_2_renewed_while_three_of_ten_frames_are_lost"),
            // With both servers.
            runs("dhc_1_a_hundred_leases_at_once"),
            runs("dhc_1_no_address_is_left"),
            runs("dhc_2_renewed_again_and_again"),
            runs("dhc_3_what_no_server_has_sent"),
            runs("dhc_6_no_discover"),
            runs("dhc_6_kube_vip_takes_over"),
        ],
    },
];
