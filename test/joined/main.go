package joined

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// agentEnv names the file of agentConfig and makes the test binary an agent.
const agentEnv = "HOLDFAST_TEST_JOINED_AGENT"

// Main is for TestMain: it runs the tests, or an agent in one of their processes,
// and then returns.
func Main(m *testing.M) {
	if file := os.Getenv(agentEnv); file != "" {
		if err := runAgent(context.Background(), file); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}
