package main

import (
	"context"
	"errors"
	"os"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// linesConfig is the `lines` section of the collector's configuration.
type linesConfig struct {
	Path string `mapstructure:"path"`
}

func (config *linesConfig) Validate() error {
	if config.Path == "" {
		return errors.New("path is required")
	}
	return nil
}

func newLinesFactory() exporter.Factory {
	return exporter.NewFactory(
		component.MustNewType("lines"),
		func() component.Config { return &linesConfig{} },
		exporter.WithTraces(newLinesExporter, component.StabilityLevelDevelopment),
	)
}

func newLinesExporter(ctx context.Context, settings exporter.Settings, config component.Config) (exporter.Traces, error) {
	file, err := os.OpenFile(config.(*linesConfig).Path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	write := func(_ context.Context, traces ptrace.Traces) error {
		line, err := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
		if err != nil {
			return err
		}
		_, err = file.Write(append(line, '\n'))
		return err
	}
	return exporterhelper.NewTraces(ctx, settings, config, write,
		exporterhelper.WithShutdown(func(context.Context) error { return file.Close() }))
}
