// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"time"

	"github.com/spf13/pflag"
)

type flagRow struct {
	Name string

	commands   []string
	fields     []flagField
	values     []string
	withConfig bool
	bind       func(fs *pflag.FlagSet, f *Flags)
}

type flagField struct {
	kind, path string
	set        func(d *documents, f *Flags)
}

// typedRow builds a flagRow whose value is a T; on completes it.
type typedRow[T any] struct {
	flag  flagRow
	short string
	value func(*Flags) *T
}

// define is a FlagSet's method that defines a flag of type T, such as StringVarP.
type define[T any] func(fs *pflag.FlagSet, to *T, name, short string, preset T, usage string)

func newRow[T any](def define[T], name string, preset T, usage string, value func(*Flags) *T) *typedRow[T] {
	r := &typedRow[T]{flag: flagRow{Name: name}, value: value}
	r.flag.bind = func(fs *pflag.FlagSet, f *Flags) { def(fs, value(f), name, r.short, preset, usage) }
	return r
}

func text(name, preset, usage string, value func(*Flags) *string) *typedRow[string] {
	return newRow((*pflag.FlagSet).StringVarP, name, preset, usage, value)
}

func number(name string, preset int32, usage string, value func(*Flags) *int32) *typedRow[int32] {
	return newRow((*pflag.FlagSet).Int32VarP, name, preset, usage, value)
}

func list(name string, preset []string, usage string, value func(*Flags) *[]string) *typedRow[[]string] {
	return newRow((*pflag.FlagSet).StringSliceVarP, name, preset, usage, value)
}

func duration(name string, preset time.Duration, usage string, value func(*Flags) *time.Duration) *typedRow[time.Duration] {
	return newRow((*pflag.FlagSet).DurationVarP, name, preset, usage, value)
}

// toggle is false unless given.
func toggle(name, usage string, value func(*Flags) *bool) *typedRow[bool] {
	return newRow((*pflag.FlagSet).BoolVarP, name, false, usage, value)
}

// switchOff is true unless given.
func switchOff(name, usage string, value func(*Flags) *bool) *typedRow[bool] {
	return newRow((*pflag.FlagSet).BoolVarP, name, true, usage, value)
}

// sets names a field the flag sets. A flag that sets the same thing for several commands has a field in each one's document.
func (r *typedRow[T]) sets(kind, path string, set func(d *documents, value T)) *typedRow[T] {
	r.flag.fields = append(r.flag.fields, flagField{kind, path, func(d *documents, f *Flags) { set(d, *r.value(f)) }})
	return r
}

// overConfig allows a field's flag beside --config: the flag takes precedence over the file.
func (r *typedRow[T]) overConfig() *typedRow[T] {
	r.flag.withConfig = true
	return r
}

func (r *typedRow[T]) shorthand(letter string) *typedRow[T] {
	r.short = letter
	return r
}

// offers lists values for shell completion.
func (r *typedRow[T]) offers(values ...string) *typedRow[T] {
	r.flag.values = values
	return r
}

// on completes the row with the commands that take the flag. "init phase" stands for phases of init with flags init doesn't take.
func (r *typedRow[T]) on(commands ...string) flagRow {
	r.flag.commands = commands
	return r.flag
}

func (f *flagRow) refusedWithConfig() bool { return len(f.fields) > 0 && !f.withConfig }

func flagOf(command, name string) *flagRow {
	rows := flagTable()
	for i := range rows {
		if rows[i].Name == name && slices.Contains(rows[i].commands, command) {
			return &rows[i]
		}
	}
	return nil
}
