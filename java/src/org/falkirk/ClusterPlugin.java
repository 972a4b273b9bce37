package org.falkirk;

import java.util.Map;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;

/**
 * A plugin of Spark, for clusters: the calls from executors to their driver. ViewReceiver asks ViewSender with a number,
 * and FiguresReporter sends its reports to ReportedFigures.
 */
public final class ClusterPlugin implements SparkPlugin {
  @Override
  public DriverPlugin driverPlugin() {
    return new DriverPlugin() {
      @Override
      public Object receive(Object message) {
        if (message instanceof Object[] report) return ReportedFigures.DRIVER.take(report);
        return ViewSender.published((long) message);
      }
    };
  }

  @Override
  public ExecutorPlugin executorPlugin() {
    return new ExecutorPlugin() {
      private FiguresReporter reporter;

      @Override
      public void init(PluginContext context, Map<String, String> more) {
        ViewReceiver.begin(context);
        reporter = FiguresReporter.begin(context);
      }

      @Override
      public void shutdown() {
        ViewReceiver.end();
        if (reporter != null) reporter.end();
      }
    };
  }
}
