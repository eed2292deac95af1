package main
import "testing"
func (p *packages) testRpm(t *testing.T)  {}
func (p *packages) testReproducible(t *testing.T)  {}
func (p *packages) testLintian(t *testing.T)  {}
func (p *packages) testRpmlint(t *testing.T)  {}
