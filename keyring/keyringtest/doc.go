// Package keyringtest has the contract of [keyring.Store] as tests, and a
// store in memory.
//
// A store that passes [TestStore] and, where it outlives the process,
// [TestReopen], can stand under a keyring: each sentence of the contract is a
// subtest, and each failure says which sentence was broken and what would
// come of it. Neither test can prove that writes survive a power cut.
//
// [NewStore] is for tests and for examples. What it holds is gone with the
// process, so it must not stand between a program and money.
package keyringtest
