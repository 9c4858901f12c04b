// Newdatabase makes an empty database in the folder that it is given, for
// .ci/sqlc-vet to check the queries against.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/countersign/countersign/db"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: newdatabase FOLDER")
		os.Exit(2)
	}
	d, err := db.Open(context.Background(), os.Args[1], db.Options{})
	if err == nil {
		err = d.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "newdatabase:", err)
		os.Exit(1)
	}
}
