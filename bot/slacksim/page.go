package slacksim

import "net/http"

func (w *Workspace) servePage(mux *http.ServeMux) { _ = mux }
