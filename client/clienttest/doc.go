// Package clienttest is a provider in a box: it de-duplicates by key, and it
// conflicts, stalls, forgets and loses answers when told to. It counts what a
// test wants to know: how often it was asked, how often it acted, under how
// many keys and with how many different bodies.
//
// The promise: with de-duplication on, one key has at most one effect, however
// many requests arrive at once, unless [Options.StoreLag] or [Server.Forget]
// says otherwise.
//
// Start at [NewServer]. [Server.RoundTripper] needs no sockets and works inside
// testing/synctest; [Server.Listen] and [Server.ListenTLS] use real ones, for
// HTTP/1.1 and HTTP/2. [Server.Script] says what goes wrong, hit by hit.
//
// A repeat under a known key gets the stored answer with the header
// "Idempotent-Replayed: true"; the key with another body gets 422 with the code
// "key_reused", and while it is still running 409 with the code "in_progress".
//
// It is a stand-in, not a model of a named provider, and has no opinion on
// what a client should do. It imports the standard library alone, and not
// testing, so that it can be used from any program.
package clienttest
