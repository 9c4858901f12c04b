package gateway

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// childVariable makes this test binary a downstream server instead of testing.
// Its value is what childServer knows. It isn't named as this product's, since
// children don't get those.
const childVariable = "GATEWAY_TEST_CHILD"

func TestMain(m *testing.M) {
	for variable, serve := range map[string]func(string) error{childVariable: serveChild, crashVariable: serveToCrash} {
		if given := os.Getenv(variable); given != "" {
			if err := serve(given); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		}
	}
	goleak.VerifyTestMain(m)
}
