package clienttest_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/samekey/samekey/client/clienttest"
)

// The first answer is lost on its way. The second request, under the same key,
// gets the stored one.
func Example() {
	srv := clienttest.NewServer(nil)
	defer srv.Close()
	srv.Script(clienttest.LoseAnswer())

	for range 2 {
		req, err := http.NewRequestWithContext(context.Background(), "POST", "http://provider.test/payments", strings.NewReader(`{"amount":1250}`))
		if err != nil {
			panic(err)
		}
		req.Header.Set("Idempotency-Key", "k-1")
		res, err := srv.RoundTripper().RoundTrip(req)
		if err != nil {
			fmt.Println("no answer")
			continue
		}
		fmt.Println(res.Status, "replayed:", res.Header.Get("Idempotent-Replayed"))
		res.Body.Close()
	}
	fmt.Println("hits:", srv.Hits(), "effects:", srv.Effects())
	// Output:
	// no answer
	// 201 Created replayed: true
	// hits: 2 effects: 1
}
