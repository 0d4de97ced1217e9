//go:build race

package fencemodel

const underRace = true
