//go:build !race

package fencemodel

const underRace = false
