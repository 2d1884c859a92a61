// Command policycontroller initializes the cache of TUF below $TUF_ROOT from a mirror and its first root.
//
// policy-controller does so at its start (--tuf-mirror, --tuf-root); policy-tester only reads the cache, and the one that
// cosign writes has another form.
package main

import (
	"context"
	"flag"
	"log"
	"os"

	"github.com/sigstore/sigstore/pkg/tuf"
)

func main() {
	mirror := flag.String("mirror", "", "URL of the repository")
	root := flag.String("root", "", "file with the first root")
	flag.Parse()
	content, err := os.ReadFile(*root)
	if err != nil {
		log.Fatalf("the first root of TUF cannot be read: %v", err)
	}
	if err := tuf.Initialize(context.Background(), *mirror, content); err != nil {
		log.Fatalf("the cache of TUF cannot be initialized from %s: %v", *mirror, err)
	}
}
