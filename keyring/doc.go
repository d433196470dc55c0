// Package keyring decides which idempotency key an intent is sent under.
//
// The promise: as long as the effect of an intent may exist, every process
// that asks is given the same key with the same request, before and after any
// crash. A second key is minted only against an inspection.
//
// Most programs never call this package; they use package client. Start at
// [Ring] to list or look at intents, and at [Store] to keep them elsewhere.
//
// A ring does not make a provider idempotent: see package provider for what
// each provider promises and for how long. A ring hands out answers and
// requests to whoever calls it; it is for the application's own tools, and
// asks for nobody's permission.
package keyring
