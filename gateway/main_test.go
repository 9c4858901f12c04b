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
	if kind := os.Getenv(childVariable); kind != "" {
		if err := serveChild(kind); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}
