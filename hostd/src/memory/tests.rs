use super::*;
use crate::verbs::Access;

fn table() -> RegionTable<HeapMemory> {
    RegionTable::new([7; 32])
}

/// HT-1, HT-3: a key opens its own range, in its own domain, for its own rights, and no more.
#[test]
fn keys_open_what_they_were_given_for() {
    let mut table = table();
    let both = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let memory = HeapMemory::new(vec![0; 100]);
    let keys = table
        .register(1, memory.clone(), 0x1000, both)
        .expect("room");
    let span = table
        .remote((1, 9), keys.rkey, 0x1000 + 90, 10, Access::REMOTE_WRITE)
        .expect("inside");
    table.copy_in(span, 0, b"0123456789").expect("inside");
    assert_eq!(&memory.to_vec()[90..], b"0123456789");
    let denied = [
        table.remote((1, 9), keys.lkey, 0x1000, 1, Access::REMOTE_WRITE),
        table.remote((2, 9), keys.rkey, 0x1000, 1, Access::REMOTE_WRITE),
        table.remote((1, 9), keys.rkey, 0x1000, 1, Access::REMOTE_READ),
        table.remote((1, 9), keys.rkey, 0x0fff, 1, Access::REMOTE_WRITE),
        table.remote((1, 9), keys.rkey, 0x1000, 101, Access::REMOTE_WRITE),
        table.remote((1, 9), keys.rkey, u64::MAX, 2, Access::REMOTE_WRITE),
        table.local(1, keys.rkey, 0x1000, 1, Access::NONE),
        table.local(1, 0, 0x1000, 1, Access::NONE),
    ];
    assert!(
        denied.iter().all(|answer| *answer == Err(AccessDenied)),
        "{denied:?}"
    );
}

/// HT-3: a range that was checked before its region went away opens nothing afterwards.
#[test]
fn deregistering_closes_checked_ranges() {
    let mut table = table();
    let keys = table
        .register(1, HeapMemory::new(vec![0; 8]), 0, Access::LOCAL_WRITE)
        .expect("room");
    let span = table
        .local(1, keys.lkey, 0, 8, Access::LOCAL_WRITE)
        .expect("inside");
    assert!(
        table.deregister(keys.rkey).is_err(),
        "not with the remote key"
    );
    assert!(table.deregister(keys.lkey).is_ok());
    assert_eq!(table.copy_in(span, 0, b"x"), Err(AccessDenied));
    assert_eq!(
        table.local(1, keys.lkey, 0, 1, Access::NONE),
        Err(AccessDenied)
    );
    assert!(!table.any_in(1));
}
