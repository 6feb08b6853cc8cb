//! Sub-paths of a connection that carries data, what is told of its traffic, its
//! service and its congestion control.

use crate::abi::answer::Reply;
use crate::abi::feature;
use crate::abi::message::Request;
use crate::abi::paths::{Congestion, PathChange, PathOutcome, PathRequest, Service, Traffic};
use crate::abi::types::ErrorCode;
use crate::channel::deadline;
use crate::session::unexpected;
use crate::{Error, QueuePair};
use std::time::{Duration, Instant};

/// From one look at the outcome of a change to the next.
pub(crate) const LOOK: Duration = Duration::from_millis(2);

impl QueuePair {
    /// Tells of the traffic of this queue pair (HT-46), at any time. hostd sends its packets in the
    /// class of the priority, lets each block begin a flowlet, and tells the peer and the switches
    /// on the way. It promises nothing.
    ///
    /// # Errors
    /// A refusal with [`ErrorCode::BadVersion`] by a hostd whose ABI is older than 3.3.
    pub fn describe_traffic(&mut self, traffic: &Traffic) -> Result<(), Error> {
        self.ask_of_paths(PathRequest::Describe(*traffic)).map(drop)
    }

    /// Asks for a delivery service (HT-39), before the queue pair is connected or accepts. Both
    /// ends get the stricter of what they ask for, so without this call, with a peer that does not
    /// make it, and with any standard RoCE peer, messages are ordered. Completions of a service
    /// without an order come in any order: tell them apart by `wr_id`. That a request completed
    /// says nothing of those before it, and receives are taken in the order in which messages
    /// become whole.
    ///
    /// # Errors
    /// The queue pair is connected. A refusal with [`ErrorCode::BadVersion`] by a hostd whose ABI
    /// is older than 3.4.
    pub fn choose_service(&mut self, service: Service) -> Result<(), Error> {
        if self.context.features & feature::SERVICES == 0 {
            return Err(Error::Refused {
                code: ErrorCode::BadVersion,
                text: "this hostd has one delivery service: its ABI is older than 3.4".to_owned(),
            });
        }
        self.ask_of_paths(PathRequest::Serve(service))?;
        // Also if the peer insists on an order: then more may be flushed than has failed.
        self.sends.set_unordered(service != Service::Ordered);
        Ok(())
    }

    /// Chooses what steers how fast this queue pair sends (CC-1 to CC-8), before it is connected or
    /// accepts; without this call it is what hostd is configured with. It is this side's matter
    /// alone: the peer chooses for what it sends itself. With a standard RoCE peer there is
    /// [`Congestion::Dcqcn`], and for all others a window that its notifications halve.
    ///
    /// # Errors
    /// The queue pair is connected. A refusal that says why hostd does not offer the algorithm: it
    /// is not among `application.congestion`, or its signals are not enabled. One with
    /// [`ErrorCode::BadVersion`] by a hostd whose ABI is older than 3.8.
    pub fn choose_congestion(&mut self, congestion: Congestion) -> Result<(), Error> {
        if self.context.features & feature::CONGESTION == 0 {
            return Err(Error::Refused {
                code: ErrorCode::BadVersion,
                text: "this hostd has one congestion control: its ABI is older than 3.8".to_owned(),
            });
        }
        let chosen = self.ask_of_paths(PathRequest::Steer(congestion));
        chosen.map(drop)
    }

    /// Changes the sub-paths of a connection that carries data, and how they are used (HT-32), as
    /// `hostctl set` does, and waits until the peer has made the change, too.
    ///
    /// # Errors
    /// A refusal that says what is not possible, here or at the peer: nothing has changed.
    /// [`Error::TimedOut`]: the peer has not answered yet, and is asked until it does. A refusal
    /// with [`ErrorCode::BadVersion`] by a hostd whose ABI is older than 3.3.
    pub fn change_paths(&mut self, change: &PathChange, timeout: Duration) -> Result<(), Error> {
        let until = deadline(timeout);
        let mut change = Changing::begin(self.ask_of_paths(PathRequest::Change(*change))?)?;
        while let Changing::Asked(name) = change {
            change = Changing::look(name, self.ask_of_paths(PathRequest::Outcome(name))?)?;
            if matches!(change, Changing::Asked(_)) {
                if Instant::now() >= until {
                    return Err(Error::TimedOut);
                }
                std::thread::sleep(LOOK);
            }
        }
        Ok(())
    }

    fn ask_of_paths(&self, request: PathRequest) -> Result<Reply, Error> {
        let request = self.path_request(request)?;
        let (reply, _) = self.context.channel.call(&request, None)?;
        Ok(reply)
    }

    /// A request that concerns sub-paths, if the daemon takes such.
    pub(crate) fn path_request(&self, request: PathRequest) -> Result<Request, Error> {
        if self.context.features & feature::PATHS == 0 {
            return Err(Error::Refused {
                code: ErrorCode::BadVersion,
                text: "this hostd takes neither hints nor changes of sub-paths: its ABI is older \
                       than 3.3"
                    .to_owned(),
            });
        }
        Ok(Request::Paths {
            qp: self.handle,
            request,
        })
    }
}

/// A change of sub-paths.
pub(crate) enum Changing {
    /// Both sides have made it.
    Made,
    /// The peer has not answered: the daemon knows the change by this name.
    Asked(u16),
}

impl Changing {
    /// From the answer to the request.
    pub(crate) fn begin(reply: Reply) -> Result<Self, Error> {
        match reply {
            Reply::PathsAsked { change: 0 } => Ok(Self::Made),
            Reply::PathsAsked { change } => Ok(Self::Asked(change)),
            reply => Err(unexpected(&reply)),
        }
    }

    /// From the answer to the question what became of the change with this name.
    pub(crate) fn look(name: u16, reply: Reply) -> Result<Self, Error> {
        match reply {
            Reply::PathsOutcome(PathOutcome::Made) => Ok(Self::Made),
            Reply::PathsOutcome(PathOutcome::Refused) => Err(Error::Refused {
                code: ErrorCode::InvalidArgument,
                text: "the peer refused the change, or the connection has ended".to_owned(),
            }),
            Reply::PathsOutcome(PathOutcome::Pending) => Ok(Self::Asked(name)),
            reply => Err(unexpected(&reply)),
        }
    }
}
