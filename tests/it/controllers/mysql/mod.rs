//! MySQLCluster: founded, refused, resized, failed over, crashed at every write, backed up, and a hundred of them;
//! over a stand-in of MySQL that runs where Pods do and speaks its protocol.

mod backups;
mod crash;
mod founding;
mod kit;
mod losing;
mod many;
mod refusing;
mod resizing;
