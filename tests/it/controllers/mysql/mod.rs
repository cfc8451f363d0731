//! MySQLCluster: founded, refused, resized, failed over, crashed at every write, and a hundred of them;
//! over a stand-in of MySQL that runs where Pods do and speaks its protocol.

mod crash;
mod founding;
mod kit;
mod losing;
mod many;
mod refusing;
mod resizing;
