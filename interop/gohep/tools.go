//go:build tools

// Package gohep pins go-hep's client and server, which interop/peers builds.
package gohep

import (
	_ "go-hep.org/x/hep/xrootd"
	_ "go-hep.org/x/hep/xrootd/cmd/xrd-client"
	_ "go-hep.org/x/hep/xrootd/cmd/xrd-cp"
	_ "go-hep.org/x/hep/xrootd/cmd/xrd-ls"
	_ "go-hep.org/x/hep/xrootd/cmd/xrd-srv"
)
