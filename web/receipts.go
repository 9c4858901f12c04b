package web

import (
	"log/slog"
	"net/http"

	"github.com/countersign/countersign/internal/receipt"
)

// ReceiptKeysPath is where ReceiptKeys belongs: where those who verify receipts look.
const ReceiptKeysPath = receipt.KeysPath

// ReceiptKeys serves the public keys that receipts are verified with, which read gives
// as a JSON Web Key Set, to anybody: they are worth nothing but for that. What goes
// wrong is logged, and not told.
func ReceiptKeys(read func() ([]byte, error), logger *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "The keys can only be read.", http.StatusMethodNotAllowed)
			return
		}
		keys, err := read()
		if err != nil {
			logger.Error("reading the keys of receipts", "err", err)
			http.Error(w, "The keys can't be read now.", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/jwk-set+json")
		w.Header().Set("Cache-Control", "no-cache") // a new key is needed at once
		_, _ = w.Write(keys)                        // the reader went away
	})
}
