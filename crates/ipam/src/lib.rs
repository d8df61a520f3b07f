//! Address ranges, pool selection and the allocation ledger: pure logic without I/O, clock or log.
