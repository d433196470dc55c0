// Package badgerkeys keeps intents in a directory, with Badger underneath.
//
// The promise: a change that was acknowledged is flushed to the disk and is
// there after a crash; and a keyring of which a part is missing or cannot be
// read is never opened as an emptier one. Such an [Open] fails, says why, and
// leaves the directory as it is.
//
// Start at [OpenOrCreate], or at [Open] in a program that must never start a
// second keyring by mistake.
//
// # What is in the directory
//
//	ring.json   the keyring's identity, outside Badger on purpose: Badger comes
//	            up empty, without an error, when its files are gone
//	lock        held by the process that has the keyring open
//	holder      who that is; left behind by a process that was killed
//	closed.json what a clean Close left behind, for the next open to compare
//	sequence    which change was acknowledged last, outside Badger on purpose:
//	            after a kill, Badger opens a damaged log without its end
//	badger/     records and their indexes
//	blobs/      requests and answers of more than some 60 KiB, a file each
//
// The directory has mode 0700, and a looser one is refused. Files are made
// with mode 0600; those that Badger makes get it as soon as they are seen,
// until then the directory's mode alone protects them.
//
// It must be on a local disk: file locks and memory maps do not work as needed
// on network file systems.
//
// # What it does not do
//
// One process has a keyring at a time; another one gets
// [keyring.ErrBusy]. On Windows, Badger flushes nothing when it commits, so
// that a change survives the death of the process but not always that of the
// machine: a keyring that has lost changes in that way is [keyring.ErrLost].
//
// An older copy of the whole directory is not recognised as one. Tables are
// read in full after an unclean end, when something has written to one, and
// once a day; what a disk alters in them by itself, against its own checksums,
// may not be seen before that.
//
// A disk that fills up in spite of the check before each write kills
// the process in the middle of a memory map; nothing acknowledged is lost.
package badgerkeys
