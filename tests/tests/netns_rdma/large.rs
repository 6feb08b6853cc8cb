//! Messages of 1 GiB.

use crate::peer::Meeting;
use crate::rig;
use crate::talk::Talk;

/// HT-1, HT-10: an RDMA WRITE of 1 GiB by hostd and a SEND of 1 GiB by the guest arrive as they
/// were.
#[test]
#[ignore = "takes minutes: make interop-long"]
fn one_message_of_a_gibibyte_each_way() {
    rig::with(|rig| {
        let meeting = Meeting {
            buffer_mib: 1024,
            ..Meeting::new(7061, false, 4096)
        };
        let mut talk = Talk::begin(rig, meeting);
        let begin = std::time::Instant::now();
        talk.hostd_sends(true, None, 1 << 30);
        println!("RDMA WRITE to the guest: {:.1?}", begin.elapsed());
        let begin = std::time::Instant::now();
        talk.guest_sends("send", 1 << 30);
        println!("SEND by the guest: {:.1?}", begin.elapsed());
        talk.end(rig);
    });
}
