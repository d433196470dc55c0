package badgerkeys_test

import (
	"os"
	"testing"

	"github.com/samekey/samekey/badgerkeys"
	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/keyring/keyringtest"
)

func TestStore(t *testing.T) {
	keyringtest.TestStore(t, func(t *testing.T) keyring.Store {
		s, err := badgerkeys.OpenOrCreate(t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	})
}

// TestC57ReopenAfterKill is field case C57, with 16 writers. The 200 rounds that it asks
// for take 40 seconds: KEYRINGTEST_ROUNDS=200 runs them.
func TestC57ReopenAfterKill(t *testing.T) {
	if os.Getenv("KEYRINGTEST_ROUNDS") == "" {
		t.Setenv("KEYRINGTEST_ROUNDS", "40")
	}
	keyringtest.TestReopen(t, func(dir string) (keyring.Store, error) {
		return badgerkeys.OpenOrCreate(dir, nil)
	})
}
