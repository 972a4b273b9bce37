package org.falkirk;

import java.util.Map;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;

/** A plugin of Spark, for clusters: the way between ViewSender and ViewReceiver. */
public final class ViewsPlugin implements SparkPlugin {
  @Override
  public DriverPlugin driverPlugin() {
    return new DriverPlugin() {
      @Override
      public Object receive(Object known) {
        return ViewSender.published((long) known);
      }
    };
  }

  @Override
  public ExecutorPlugin executorPlugin() {
    return new ExecutorPlugin() {
      @Override
      public void init(PluginContext context, Map<String, String> more) {
        ViewReceiver.begin(context);
      }

      @Override
      public void shutdown() {
        ViewReceiver.end();
      }
    };
  }
}
