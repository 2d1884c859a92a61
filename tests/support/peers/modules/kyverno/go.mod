module gkm.io/tests/peers/kyverno

go 1.26.0

require github.com/kyverno/kyverno v1.19.1
